// A router's store of contexts: prompts that clients build up call by call.
//
// The store keeps the tokens of each context. A prefill worker can therefore compute KV again that
// it has lost.
//
// I/O-free: the time comes in. Not thread-safe.
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
#include "agent/shares.h"
#include "base/ids.h"

namespace baton {

struct ContextLimits {
  absl::Duration lease = absl::Seconds(60);  // a context is deleted this long after its last use
  // Upper bounds on the contexts, and on their tokens, which take 128 MiB. Each owner has a share
  // (agent/shares.h).
  int64_t contexts = 32768;
  int64_t tokens = int64_t{32} << 20;
};

// The name of a context within a cache domain.
struct ContextKey {
  std::string cache_domain;
  std::string id;
  friend auto operator<=>(const ContextKey&, const ContextKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ContextKey& key) {
    return H::combine(std::move(h), key.cache_domain, key.id);
  }
};

// Calls use a context between their Begin and End functions. The store keeps a context while calls
// use it. One call at a time appends to a context.
class ContextStore {
 public:
  explicit ContextStore(ContextLimits limits) : limits_(limits), owned_(limits.contexts), tokens_(limits.tokens) {}

  // The state of a context, as a call receives it.
  struct View {
    // The tokens that precede those of the call.
    std::vector<TokenId> tokens;
    // Configured address of the prefill worker that last computed the context. Empty if there is
    // none.
    WorkerAddress holder;
  };

  // Begins a call that appends to the context. Makes the context if it does not exist.
  //
  // `length` is the number of tokens that the client expects in the context. A client that lost the
  // answer to a call repeats the call with the length before it, which is less than the context's.
  //
  // Errors:
  // - ABORTED: another call is appending to the context.
  // - FAILED_PRECONDITION: the context has another model, or fewer tokens than `length`. The
  //   message names both values.
  // - NOT_FOUND: `length` is positive, and the context does not exist.
  // - RESOURCE_EXHAUSTED: there are too many contexts, or the owner has too many.
  absl::StatusOr<View> BeginAppend(const ContextKey& key, const std::string& model, std::optional<int64_t> length,
                                   absl::Time now);
  // Sets the call's complete prompt, which begins with the tokens of BeginAppend's View. REQUIRES:
  // BeginAppend was OK.
  //
  // Errors:
  // - FAILED_PRECONDITION: the call's `length` is less than the context's, and the context does not
  //   continue with the call's tokens.
  // - RESOURCE_EXHAUSTED: the contexts have too many tokens, or those of the owner have.
  absl::Status Complete(const ContextKey& key, std::span<const TokenId> prompt);
  // Ends a call of BeginAppend. `holder` is the configured address of the prefill worker that
  // computed the prompt. The context then includes the call's tokens. An empty `holder` states that
  // the call failed, and leaves the context as it was.
  void EndAppend(const ContextKey& key, const WorkerAddress& holder, absl::Time now);

  // Begins a call whose prompt begins with the whole context.
  //
  // Errors:
  // - NOT_FOUND: the context does not exist.
  // - FAILED_PRECONDITION: the context has another model, or another number of tokens than
  //   `length`.
  absl::StatusOr<View> BeginRead(const ContextKey& key, const std::string& model, std::optional<int64_t> length,
                                 absl::Time now);
  // Ends a call of BeginRead. `holder` as for EndAppend.
  void EndRead(const ContextKey& key, const WorkerAddress& holder, absl::Time now);

  // Forgets that this worker holds any context.
  void WorkerLost(const WorkerAddress& link);
  // Deletes the contexts that no call has used for limits.lease.
  void Tick(absl::Time now);
  // Before this time Tick does nothing.
  absl::Time NextTick() const { return expiries_.empty() ? absl::InfiniteFuture() : expiries_.begin()->first; }

  absl::Duration lease() const { return limits_.lease; }
  int64_t size() const { return static_cast<int64_t>(contexts_.size()); }
  int64_t tokens() const { return tokens_.total(); }
  void CheckInvariants() const;

 private:
  struct Context {
    std::string model;
    std::vector<TokenId> tokens;
    WorkerAddress holder;
    int32_t calls = 0;   // calls that use it
    absl::Time expires;  // time of deletion, if no call uses it
    // True if a call appends to the context. That call's prompt has the context's first `begin`
    // tokens and then `added`, which is empty until the prompt is complete.
    bool appending = false;
    size_t begin = 0;
    std::vector<TokenId> added;
  };
  absl::Status Check(const ContextKey& key, const Context& context, const std::string& model) const;
  absl::Status NotFound(const ContextKey& key) const;
  void Begin(const ContextKey& key, Context& context);
  void End(const ContextKey& key, const WorkerAddress& holder, absl::Time now);
  void Forget(const ContextKey& key);

  const ContextLimits limits_;
  absl::flat_hash_map<ContextKey, Context> contexts_;
  std::set<std::pair<absl::Time, ContextKey>> expiries_;  // contexts that no call uses
  Shares owned_;                                          // contexts
  Shares tokens_;                                         // with all tokens in `added`
};

}  // namespace baton
