// Who waits for whose output: every request of a router, live or lately over, and the prompts that refer to them. Ids
// are those of ScopedId, so that no prompt reads another tenant's output. I/O-free: events and the time come in,
// actions go out, in order. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/output.h"
#include "agent/prompt.h"
#include "agent/scoped_id.h"
#include "base/ids.h"

namespace baton {

struct AgentLimits {
  absl::Duration keep_output = absl::Minutes(2);     // after its end, for prompts that come later
  int64_t kept_bytes = int64_t{256} << 20;           // of such outputs; the oldest go first
  absl::Duration wait_announced = absl::Minutes(2);  // for an announced request to be submitted
  int32_t announced = 65536;                         // requests that are announced and not submitted
  int64_t references = 65536;                        // of all prompts that are not complete
};

// These tokens follow those told before; `complete`: they are the last.
struct PromptGrew {
  RequestId id;
  std::vector<TokenId> tokens;
  bool complete = false;
};
// What was told is void: the prompt begins anew, and PromptGrew follows.
struct PromptRestarted {
  RequestId id;
};
// The prompt will not be complete. It is forgotten.
struct PromptFailed {
  RequestId id;
  absl::Status status;
};
using AgentAction = std::variant<PromptGrew, PromptRestarted, PromptFailed>;

class AgentGraph {
 public:
  explicit AgentGraph(AgentLimits limits) : limits_(limits) {}

  // A request whose prompt is complete: its output can be referred to from now on. Refused as by Submit.
  absl::Status Add(const RequestId& id, const Tokenizer& tokenizer);
  // And one whose prompt is not, or not yet. Returns what is known of it; the rest comes by actions. Growth is told
  // when it completes blocks of KV, its end aside. Refused, with nothing changed: ALREADY_EXISTS, an id that is live or
  // that a prompt waits for; NOT_FOUND, an upstream that is unknown or whose output is kept no longer;
  // INVALID_ARGUMENT, a cycle, or a prompt that is empty or too long; RESOURCE_EXHAUSTED, too many announced requests
  // or references. Or it fails at once, as PromptFailed, because an upstream has: then so do those that refer to it.
  absl::StatusOr<PromptGrew> Submit(PromptSpec spec, absl::Time now);
  // Whoever called Add or Submit just now could not go on with it: nothing has changed. Prompts that wait for it, as it
  // was announced, wait on for another request of its id. Harmless if Add or Submit have refused it and none is live.
  void Refused(const RequestId& id);
  // What the request made, as in a TokenUpdate. Harmless if it is unknown or over, as is Ended.
  void Made(const RequestId& id, std::span<const TokenId> tokens, std::string_view text);
  // The request is over. Not OK: what it made is a part. Its prompt, if it still grows, is forgotten.
  void Ended(const RequestId& id, const absl::Status& status, absl::Time now);
  // The same for one whose output nobody may refer to, so that none is kept. REQUIRES: nobody does.
  void EndedUnread(const RequestId& id);

  // Whether growing prompts wait for its output, and which.
  bool HasReaders(const RequestId& id) const;
  std::vector<RequestId> ReadersOf(const RequestId& id) const;
  // Whose outputs a growing prompt still waits for, each once; of another none.
  std::vector<RequestId> UpstreamsOf(const RequestId& id) const;

  void Tick(absl::Time now);    // timeouts of references, announced requests, kept outputs
  absl::Time NextTick() const;  // when Tick has something to do at the latest; InfiniteFuture: nothing
  std::vector<AgentAction> TakeActions();

  struct Counts {
    int64_t growing = 0;     // prompts that are not complete
    int64_t references = 0;  // of these
    int64_t announced = 0;   // requests referred to and not submitted
    int64_t kept = 0;        // outputs of requests that are over
    int64_t kept_bytes = 0;
    friend bool operator==(const Counts&, const Counts&) = default;
  };
  Counts counts() const { return counts_; }
  void CheckInvariants() const;

 private:
  enum class State { kAnnounced, kLive, kOver };
  struct Growing {
    Prompt prompt;
    std::vector<TokenId> untold;
    std::vector<absl::Time> deadlines;                                // of its references
    absl::flat_hash_map<RequestId, std::vector<size_t>> upstreams{};  // each once, with its references' indices
  };
  struct Node {
    State state = State::kAnnounced;
    std::unique_ptr<Output> output;    // once it is submitted
    std::unique_ptr<Growing> growing;  // while its prompt waits for another's output
    std::set<RequestId> readers;       // growing prompts that refer to it
    absl::Time expires = absl::InfiniteFuture();
    absl::Time announced_until = absl::InfiniteFuture();  // what `expires` was before it was submitted
    int64_t bytes = 0;                                    // counted in kept_bytes
  };
  enum class TimerKind { kNode, kReference };
  using Timer = std::tuple<absl::Time, TimerKind, RequestId, size_t>;

  absl::Status CheckId(const RequestId& id) const;
  Node& Enter(const RequestId& id, const Tokenizer& tokenizer);
  absl::Status CheckReferences(const PromptSpec& spec) const;
  absl::Status CheckUpstream(const Reference& reference) const;
  bool IsCycle(const PromptSpec& spec) const;
  void Link(const RequestId& id, Node& node, absl::Time now);
  void Announce(const RequestId& id, Node& node, absl::Time until);
  absl::Status SettleKnown(const RequestId& id, Growing& growing);
  absl::Status Settle(const RequestId& id, Growing& growing, size_t index, const absl::Status& status);
  void SettleAndAdvance(const RequestId& id, std::span<const size_t> indices, const absl::Status& status);
  void SettleReaders(const RequestId& upstream, const absl::Status& status);
  absl::StatusOr<PromptGrew> Grow(const RequestId& id, Growing& growing) const;
  void Advance(const RequestId& id);
  void Fail(const RequestId& id, const absl::Status& status);
  void StopGrowing(const RequestId& id, Node& node);
  void Keep(const RequestId& id, Node& node, absl::Time until);
  std::unique_ptr<Node> Drop(const RequestId& id);

  const AgentLimits limits_;
  absl::flat_hash_map<RequestId, std::unique_ptr<Node>> nodes_;
  std::unique_ptr<Node> replaced_;  // the earlier request of its id, whose output was kept, for Refused
  std::set<Timer> timers_;
  Counts counts_;
  std::vector<AgentAction> actions_;
};

}  // namespace baton
