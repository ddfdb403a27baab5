// Which requests wait for which outputs. The graph keeps outputs by name: announced ones, those of
// live requests, and those of requests that ended lately. Names are those of ScopedId, so that no
// prompt reads another tenant's output. I/O-free: events and the time come in, actions go out, in
// order. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
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

struct AgentNode;

// An output, and the streaming prompts that refer to it.
struct AgentOutput {
  enum class State { kAnnounced, kLive, kOver };
  struct ById {
    bool operator()(const AgentNode* a, const AgentNode* b) const;
  };
  State state = State::kAnnounced;
  AgentNode* maker = nullptr;            // kLive: the request that generates it
  std::unique_ptr<Output> text{};        // null: kAnnounced
  std::set<AgentNode*, ById> readers{};  // whose prompts refer to it, and are not complete
  absl::Time expires = absl::InfiniteFuture();
  absl::Time announced_until = absl::InfiniteFuture();  // `expires` before the request was submitted
  int64_t bytes = 0;                                    // counted in kept_bytes
};

// A prompt some of whose references are unfinished.
struct StreamingPrompt {
  Prompt prompt;
  std::vector<TokenId> unreported{};
  std::vector<absl::Time> deadlines{};  // of its references
  std::vector<AgentOutput*> sources{};  // of its references; null: settled, and no longer known
  absl::flat_hash_map<AgentOutput*, std::vector<size_t>> upstreams{};  // references to each source
};

struct Request;

// What the graph keeps of a live request. The request owns it.
struct AgentNode {
  const RequestId* id = nullptr;               // of the request
  Request* request = nullptr;                  // for the owner; the graph does not use it
  std::unique_ptr<AgentOutput> output{};       // null: the graph does not have the request
  std::unique_ptr<StreamingPrompt> growing{};  // null: its prompt is complete
};

// These tokens follow those reported before. `complete`: they are the last.
struct PromptGrew {
  AgentNode* node = nullptr;
  std::vector<TokenId> tokens{};
  bool complete = false;
};
// What was reported is void: the prompt begins anew, and PromptGrew follows.
struct PromptRestarted {
  AgentNode* node = nullptr;
};
// The prompt will not be complete. It is forgotten.
struct PromptFailed {
  AgentNode* node = nullptr;
  absl::Status status{};
};
using AgentAction = std::variant<PromptGrew, PromptRestarted, PromptFailed>;

class AgentGraph {
 public:
  // Finds the node of a live request by name. Null: none is live.
  using FindNode = std::function<AgentNode*(const RequestId& id)>;
  AgentGraph(AgentLimits limits, FindNode find) : limits_(limits), find_(std::move(find)) {}

  // Adds a request whose prompt is complete: its output can be referred to from now on. Refused as
  // by Submit.
  absl::Status Add(AgentNode& node, const Tokenizer& tokenizer);
  // Adds a request whose prompt has references. Returns what is known of the prompt. The rest comes
  // by actions: growth is reported when it completes blocks of KV, its end aside. Refused, with
  // nothing changed: ALREADY_EXISTS, an id that is live or that a prompt waits for; NOT_FOUND, an
  // upstream that is unknown or whose output is kept no longer; INVALID_ARGUMENT, a cycle, or a
  // prompt that is empty or too long; RESOURCE_EXHAUSTED, too many announced requests or references.
  // If an upstream request has failed, the prompt fails at once, by a PromptFailed action, and so do
  // the prompts that wait for its output. REQUIRES: `spec` stays unchanged until the prompt is
  // complete or has failed, or until the request is refused or over.
  absl::StatusOr<PromptGrew> Submit(AgentNode& node, const PromptSpec& spec, absl::Time now);
  // The caller of Add or Submit could not go on with the request: nothing has changed. Prompts that
  // wait for it, as it was announced, wait on for another request of its id. Harmless if Add or
  // Submit have refused it.
  void Refused(AgentNode& node);
  // The request generated this, as in a TokenUpdate. Harmless if the graph does not have it, as is
  // Ended.
  void Made(AgentNode& node, std::span<const TokenId> tokens, std::string_view text);
  // The request is over, and no action concerns it any more. Not OK: its output is a part. Its
  // prompt, if it still grows, is forgotten.
  void Ended(AgentNode& node, const absl::Status& status, absl::Time now);
  // The same for a request whose output is not kept. REQUIRES: no prompt refers to it.
  void EndedUnread(AgentNode& node);

  // Requests whose streaming prompts wait for its output, by id.
  static std::vector<AgentNode*> ReadersOf(const AgentNode& node);
  // Live requests for whose outputs a streaming prompt still waits, by id.
  static std::vector<AgentNode*> UpstreamsOf(const AgentNode& node);

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
  Counts counts() const;
  void CheckInvariants() const;

 private:
  using State = AgentOutput::State;
  enum class TimerKind { kOutput, kReference };
  using Timer = std::tuple<absl::Time, TimerKind, RequestId, size_t>;

  AgentOutput* Find(const RequestId& id) const;  // null: the name is not known
  absl::Status CheckId(const AgentNode& node) const;
  void Enter(AgentNode& node, const Tokenizer& tokenizer);
  absl::Status CheckReferences(const RequestId& id, const PromptSpec& spec) const;
  absl::Status CheckUpstream(const Reference& reference) const;
  bool IsCycle(const RequestId& id, const PromptSpec& spec) const;
  void Link(AgentNode& node, absl::Time now);
  void Announce(const RequestId& id, std::unique_ptr<AgentOutput> output, absl::Time until);
  absl::Status SettleKnown(AgentNode& node);
  absl::Status Settle(AgentNode& node, size_t index, const absl::Status& status);
  void SettleAndAdvance(AgentNode& node, std::span<const size_t> indices, const absl::Status& status);
  void SettleReaders(AgentOutput& output, const absl::Status& status);
  static absl::StatusOr<PromptGrew> Grow(AgentNode& node);
  void Advance(AgentNode& node);
  void Fail(AgentNode& node, const absl::Status& status);
  void StopGrowing(AgentNode& node);
  void Keep(const RequestId& id, std::unique_ptr<AgentOutput> output, absl::Time until);
  std::unique_ptr<AgentOutput> Drop(const RequestId& id);
  void ForgetActions(const AgentNode& node);

  const AgentLimits limits_;
  const FindNode find_;
  // Announced outputs, and those of requests that are over. Live requests own theirs.
  absl::flat_hash_map<RequestId, std::unique_ptr<AgentOutput>> outputs_;
  absl::flat_hash_set<AgentNode*> streaming_;  // whose prompts are not complete
  std::unique_ptr<AgentOutput> replaced_;      // the kept output of an earlier request, for Refused
  std::set<Timer> timers_;
  Counts counts_;  // but for `growing`
  std::vector<AgentAction> actions_;
};

}  // namespace baton
