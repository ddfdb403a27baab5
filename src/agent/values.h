// The live values of a router. A value is an output that a client writes in place of a model: the
// result of a tool, or the words of a user.
//
// Prompts refer to a value by its id, as to a request, and the graph treats it as a request without
// a prompt. A value that has ended is a kept output of the graph, and does not belong to this
// class.
//
// I/O-free: events and the time come in. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/agent_graph.h"
#include "agent/shares.h"
#include "base/ids.h"
#include "tenants/workflows.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace baton {

struct ValueLimits {
  int64_t bytes = int64_t{1} << 20;        // of one value; a token id counts as four
  int64_t live_bytes = int64_t{64} << 20;  // of all live values
  int32_t live = 4096;                     // values
  // From its beginning until a value must be complete.
  absl::Duration time = absl::Minutes(10);
};

struct ValueSpec {
  RequestId id{};  // a ScopedId
  std::string cache_domain{}, tenant{};
  std::string workflow{}, agent{};  // empty: none
  WorkflowLimits workflow_limits{};
  bool if_unknown = false;  // Begin returns ALREADY_EXISTS unless AgentGraph::IsUnknown
  // That of the value's token ids, which must outlive the value. Null: the value is a text.
  const Tokenizer* tokenizer = nullptr;
};

// Distinguishes a value from others with the same id.
struct ValueTicket {
  RequestId id{};  // a ScopedId
  uint64_t number = 0;
};

// The client that writes a value.
class ValueSink {
 public:
  virtual ~ValueSink() = default;
  // The value has ended before its client ended it. Called at most once.
  virtual void OnValueEnded(const absl::Status& status) = 0;
};

// A value that has ended.
struct EndedValue {
  ValueSpec spec{};
  int32_t attempt = 1;  // AgentNode::attempt
  absl::Time began, ended;
  absl::Status status;
  // Null if the client has the status already.
  std::shared_ptr<ValueSink> sink{};
};

class Values {
 public:
  // `graph` and `workflows` must outlive this object.
  Values(ValueLimits limits, AgentGraph& graph, Workflows& workflows)
      : limits_(limits), graph_(graph), workflows_(workflows) {}

  // Begins a value. Prompts that refer to its id as an announced one receive its tokens from now
  // on. `sink` may be null.
  //
  // Errors count as the refusal of a submission (AgentGraph::Refused):
  // - ALREADY_EXISTS: as AgentGraph::AddValue.
  // - RESOURCE_EXHAUSTED: too many values are live, or too many of the tenant's.
  // - the errors of Workflows::Check
  absl::StatusOr<ValueTicket> Begin(ValueSpec spec, std::shared_ptr<ValueSink> sink, absl::Time now);
  // Appends text to a value that is a text, or token ids to another. After an error the value has
  // ended with this error, except that a value that had ended before returns ABORTED.
  // - INVALID_ARGUMENT: the value would be longer than ValueLimits::bytes.
  // - RESOURCE_EXHAUSTED: live values have too many bytes, or those of the tenant have.
  //
  // REQUIRES: `text` is valid UTF-8, and `tokens` are ids of the value's tokenizer.
  absl::Status AppendText(const ValueTicket& ticket, std::string_view text, absl::Time now);
  absl::Status AppendTokens(const ValueTicket& ticket, std::span<const TokenId> tokens, absl::Time now);
  // Ends a value. With another status than OK it counts as failed, as an upstream request does.
  // Does nothing if the value has ended.
  void End(const ValueTicket& ticket, const absl::Status& status, absl::Time now);
  // Ends a live value, and calls its sink. REQUIRES: Find returns its node.
  void Fail(const RequestId& id, const absl::Status& status, absl::Time now);
  // Ends all values.
  void EndAll(const absl::Status& status, absl::Time now);
  // Ends the values that were not complete in time with DEADLINE_EXCEEDED.
  void Tick(absl::Time now);
  // Before this time Tick does nothing. InfiniteFuture: no value is live.
  absl::Time NextTick() const { return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first; }

  // Returns the node of a live value. Returns null if there is none.
  AgentNode* Find(const RequestId& id) const;
  // Visits the live values, in no order.
  void ForEach(absl::FunctionRef<void(const ValueSpec& spec, absl::Time began, int32_t attempt)> visit) const;
  // Returns the values that have ended since the last call.
  std::vector<EndedValue> TakeEnded() { return std::exchange(ended_, {}); }

  struct Counts {
    int64_t live = 0, bytes = 0;
    friend bool operator==(const Counts&, const Counts&) = default;
  };
  Counts counts() const { return {.live = live_.total(), .bytes = bytes_.total()}; }
  void CheckInvariants() const;

 private:
  struct Value {
    ValueSpec spec;
    uint64_t number = 0;
    absl::Time began;
    std::shared_ptr<ValueSink> sink{};
    AgentNode node{};
    Workflows::Part flow{};
    std::optional<Detokenizer> detokenizer{};  // of token ids
    int64_t bytes = 0;
  };
  Value* Find(const ValueTicket& ticket) const;
  absl::Status CheckRoom(const std::string& tenant, const Counts& more) const;
  // Ends the value with an error if it may not become longer by this many bytes.
  absl::Status Grow(const ValueTicket& ticket, size_t bytes, absl::Time now);
  void Count(const Value& value, const Counts& more);
  void Finish(Value& value, const absl::Status& status, bool notify, absl::Time now);

  const ValueLimits limits_;
  Shares live_{limits_.live}, bytes_{limits_.live_bytes};  // of tenants
  AgentGraph& graph_;
  Workflows& workflows_;
  uint64_t numbers_ = 0;
  absl::flat_hash_map<RequestId, std::unique_ptr<Value>> values_;
  std::set<std::pair<absl::Time, RequestId>> deadlines_;
  std::vector<EndedValue> ended_;
};

}  // namespace baton
