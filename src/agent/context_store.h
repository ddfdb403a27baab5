// Prompts that clients build up call by call (contexts): a router keeps their tokens, so that KV which is gone costs
// only work. I/O-free: the time comes in. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"

namespace baton {

struct ContextLimits {
  absl::Duration lease = absl::Seconds(60);  // a context is kept for this long after its last use
  int64_t contexts = 16384;
  int64_t tokens = int64_t{16} << 20;  // of all contexts together: 64 MiB
};

// Another tenant's context is simply not there.
struct ContextKey {
  std::string tenant;  // the cache salt
  std::string id;
  friend auto operator<=>(const ContextKey&, const ContextKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ContextKey& key) {
    return H::combine(std::move(h), key.tenant, key.id);
  }
};

// Calls that use a context begin and end; in between it is not forgotten. One call at a time adds to a context.
class ContextStore {
 public:
  explicit ContextStore(ContextLimits limits) : limits_(limits) {}

  // What a call is given.
  struct View {
    std::vector<TokenId> tokens;  // before those of the call
    WorkerAddress holder;         // the link of the prefill worker that computed it last; empty: none
  };

  // A call that adds to the context, which is made if it is not there. `length`: how many tokens the client believes to
  // be there; fewer than there are is how a call is repeated whose answer was lost. ABORTED: another call adds to it;
  // FAILED_PRECONDITION: other model or length (expected and got are named); NOT_FOUND: a length above 0, and nothing
  // there; RESOURCE_EXHAUSTED: too many contexts.
  absl::StatusOr<View> BeginAppend(const ContextKey& key, const std::string& model, std::optional<int64_t> length,
                                   absl::Time now);
  // The call's prompt, which begins with the tokens it was given, is complete. FAILED_PRECONDITION: it is a repetition
  // of nothing that was added; RESOURCE_EXHAUSTED: too many tokens. REQUIRES: BeginAppend was OK.
  absl::Status Complete(const ContextKey& key, std::span<const TokenId> prompt);
  // `holder`: who has computed the prompt, which is the context's now, unless it has been before; empty: the call
  // failed, and the context is as it was.
  void EndAppend(const ContextKey& key, const WorkerAddress& holder, absl::Time now);

  // A call whose prompt begins with all of the context. NOT_FOUND; FAILED_PRECONDITION as above.
  absl::StatusOr<View> BeginRead(const ContextKey& key, const std::string& model, std::optional<int64_t> length,
                                 absl::Time now);
  void EndRead(const ContextKey& key, const WorkerAddress& holder, absl::Time now);

  void WorkerLost(const WorkerAddress& link);  // and what it computed
  void Tick(absl::Time now);                   // forgets what has not been used for too long
  absl::Time NextTick() const { return expiries_.empty() ? absl::InfiniteFuture() : expiries_.begin()->first; }

  absl::Duration lease() const { return limits_.lease; }
  int64_t size() const { return static_cast<int64_t>(contexts_.size()); }
  int64_t tokens() const { return tokens_; }
  void CheckInvariants() const;

 private:
  struct Context {
    std::string model;
    std::vector<TokenId> tokens;
    WorkerAddress holder;
    int32_t calls = 0;           // that use it
    absl::Time expires;          // without calls
    bool appending = false;      // one of the calls adds to it:
    size_t begin = 0;            //   after this many tokens
    std::vector<TokenId> added;  //   these, once its prompt is complete
  };
  absl::Status Check(const ContextKey& key, const Context& context, const std::string& model) const;
  absl::Status NotFound(const ContextKey& key) const;
  void Begin(const ContextKey& key, Context& context);
  void End(const ContextKey& key, const WorkerAddress& holder, absl::Time now);
  void Forget(const ContextKey& key);

  const ContextLimits limits_;
  absl::flat_hash_map<ContextKey, Context> contexts_;
  std::set<std::pair<absl::Time, ContextKey>> expiries_;  // of those without calls
  int64_t tokens_ = 0;                                    // with what is being added
};

}  // namespace baton
