// The graph of requests and the outputs that their prompts refer to.
//
// The graph finds an output by the ScopedId of its request, so no prompt reads an output of another
// cache domain. It has three kinds of outputs: announced ones, those of live requests, and those of
// requests that ended recently. A value (agent/values.h) counts as a request without a prompt.
//
// I/O-free: events and the time come in, and actions go out in order. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/agent_actions.h"
#include "agent/agent_limits.h"
#include "agent/agent_node.h"
#include "agent/output.h"
#include "agent/output_table.h"
#include "agent/refusal_table.h"
#include "agent/retry_holds.h"
#include "agent/scoped_id.h"
#include "agent/shares.h"
#include "agent/submission_check.h"
#include "base/ids.h"

namespace baton {

class AgentGraph {
 public:
  using FindNode = SubmissionCheck::FindNode;
  AgentGraph(AgentLimits limits, FindNode find)
      : limits_(limits),
        find_(std::move(find)),
        outputs_({.kept_bytes = limits.kept_bytes, .announced = limits.announced}),
        refusals_(limits.refused),
        holds_(limits.references),
        references_(limits.references) {}

  // Adds a request whose prompt is complete. Other prompts can refer to its output from now on.
  // Fails with ALREADY_EXISTS, as Submit does.
  absl::Status Add(AgentNode& node, const Tokenizer& tokenizer);
  // Adds a value. A null `tokenizer` means that the value is a text. Fails with ALREADY_EXISTS, as
  // Submit does, and if the output of an ended request with this id is complete.
  absl::Status AddValue(AgentNode& node, const Tokenizer* tokenizer);
  // Adds a request whose prompt has references, and returns the tokens that are final already.
  // Actions report the rest. An increment is reported once it completes KV blocks, or once the
  // prompt is complete.
  //
  // REQUIRES: `spec` stays unchanged until the prompt is complete or has failed, or until the
  // request is refused or has ended.
  //
  // Errors that leave the graph as it was:
  // - ALREADY_EXISTS: a request or value with this id is live, a complete value has this id, or a
  //   prompt still reads the output of an ended request with this id.
  // - NOT_FOUND: an upstream request is unknown and not announced, or its output is no longer kept,
  //   and its reference is OnFailure::kAbort, and the prompt uses all outputs.
  // - INVALID_ARGUMENT: the references form a cycle, or the prompt is empty or too long.
  // - RESOURCE_EXHAUSTED: there are too many announced requests or too many references, or the
  //   owner has too many of them.
  //
  // An upstream request that was refused counts as failed, and so does any other unknown one. If a
  // failed upstream request makes the prompt fail, Submit returns the status that PromptFailed
  // would have. The request then counts as ended with this status, and its downstream prompts are
  // settled.
  //
  // An output with OnFailure::kAbort that fails makes the prompt fail, unless enough others remain
  // for PromptSpec::first. Then it is discarded.
  absl::StatusOr<PromptIncrement> Submit(AgentNode& node, const PromptSpec& spec, absl::Time now);
  // Whether no request or value with this id is live, or ended or was refused a short time ago.
  bool IsUnknown(const RequestId& id, absl::Time now) const;
  // Undoes Add or Submit, for a caller that cannot go on with the request. Prompts that refer to
  // the request as an announced one wait for another request with this id, until Refused. The
  // request counts as one that referred to no output. Does nothing if Add or Submit failed.
  // REQUIRES: no other event since, and TakeActions was not called.
  void Undo(AgentNode& node);
  // A submission with this id was refused. Later prompts that refer to the id receive this reason
  // for `keep_output`, unless a further submission is accepted. The prompts that refer to it as an
  // announced one fail now. If the refusal may be retried, they wait for the retry delay of the
  // answer (RetryDelayOf, `retry_after` as known), and for `wait_retry`, and fail then. `agent` is
  // the request's agent name. Does nothing if a live request has the id. If a kept output has it,
  // changes only for how long the outputs stay that the failed request needed.
  void Refused(const RequestId& id, const std::string& agent, const absl::Status& status, absl::Duration retry_after,
               absl::Time now);
  // Begins the request's output after its prompt, as Output::BeginAfter. Does nothing if the graph
  // does not have the request.
  void BeginAfter(AgentNode& node, std::span<const TokenId> before, Thinking thinking);
  // Appends tokens and text, as in a TokenUpdate, to the request's output. Does nothing if the
  // graph does not have the request.
  void Made(AgentNode& node, std::span<const TokenId> tokens, std::string_view text);
  // Ends the request. No later action concerns it. If `status` is not OK, its output counts as
  // failed, and its text so far as partial. `status` may carry a root cause. A streaming prompt of
  // the request is dropped. Does nothing if the graph does not have the request.
  //
  // If the failure may be retried, prompts that refer to the request as an announced one, also
  // later ones, wait for another submission with its id, as after Refused. They keep the tokens of
  // the failed attempt until that one has tokens. The outputs that the request needed count as
  // needed for the same time, or until another submission.
  void Ended(AgentNode& node, const absl::Status& status, absl::Time now, absl::Duration retry_after = {});
  // Like Ended, but drops the output. REQUIRES: no prompt refers to the output.
  void EndedWithoutOutput(AgentNode& node);

  // Returns whether the prompt of a client's request needs the output, or the next attempt of a
  // failed request may. A prompt needs an output until it has settled all references to it.
  static bool IsNeeded(const AgentNode& node) { return node.output != nullptr && node.output->needs > 0; }
  // Returns the requests whose streaming prompts refer to the output, ordered by id.
  static std::vector<AgentNode*> DownstreamsOf(const AgentNode& node);
  // Returns the live requests and values whose outputs the streaming prompt still needs, ordered by
  // id.
  static std::vector<AgentNode*> UpstreamsOf(const AgentNode& node);

  // Applies the timeouts of references, announced requests and kept outputs.
  void Tick(absl::Time now);
  // Before this time Tick does nothing. InfiniteFuture: no timeout is pending.
  absl::Time NextTick() const;
  // Returns the actions since the last call. The caller calls this after each event. If kept
  // outputs have too many bytes, drops some (KeptBytes). Prompts that refer to these begin again
  // with the present attempt, or fail with RESOURCE_EXHAUSTED if there is none.
  std::vector<AgentAction> TakeActions();

  struct Counts {
    int64_t streaming = 0;   // streaming prompts
    int64_t references = 0;  // references of streaming prompts
    int64_t announced = 0;   // requests that are referred to and not submitted
    int64_t kept = 0;        // outputs of ended requests
    int64_t kept_bytes = 0;
    friend bool operator==(const Counts&, const Counts&) = default;
  };
  Counts counts() const;
  void CheckInvariants() const;

 private:
  using State = AgentOutput::State;
  // The timeout of a reference: the id of the prompt's request, and the reference's index.
  using ReferenceTimer = std::tuple<absl::Time, RequestId, size_t>;

  std::unique_ptr<AgentOutput> NewOutput(const RequestId& id);
  void Enter(AgentNode& node, std::unique_ptr<Output> text, bool is_value);
  void Link(AgentNode& node, absl::Time now);
  AgentOutput* AnnounceFor(const Reference& reference, absl::Time now);
  absl::Time RetryEnd(const absl::Status& status, absl::Duration retry_after, absl::Time now) const;
  void AwaitRetry(AgentNode& node, const absl::Status& status, absl::Time until);
  std::vector<AgentNode*> Supersede(AgentOutput& output);
  void Hold(const AgentNode& node, absl::Time until);
  void ReleaseHeld(const HeldOutputs& held);
  AgentOutput* FindHeld(const HeldOutput& held) const;
  void FailAnnounced(const RequestId& id, const absl::Status& status);
  void Expire(const RequestId& id, absl::Time now);
  absl::Status ReasonOf(const Reference& reference, const Refusal* refusal) const;
  absl::Status SettleKnown(AgentNode& node, absl::Time now);
  absl::Status Settle(AgentNode& node, size_t index, const absl::Status& status);
  void ReleaseReference(const AgentNode& node, size_t index);
  void Unneed(AgentOutput& upstream);
  void SettleAndAdvance(AgentNode& node, std::span<const size_t> indices, const absl::Status& status);
  void SettleDownstreams(AgentOutput& output, const absl::Status& status);
  void Advance(AgentNode& node);
  void AdvanceAll(std::span<AgentNode* const> nodes);
  void Fail(AgentNode& node, const absl::Status& status);
  void StopStreaming(AgentNode& node);
  void Drop(AgentOutput& output);

  const AgentLimits limits_;
  const FindNode find_;
  OutputTable outputs_;  // a live request owns its output
  RefusalTable refusals_;
  RetryHolds holds_;
  absl::flat_hash_set<AgentNode*> streaming_;  // nodes with streaming prompts
  // The last Add or Submit replaced this kept output and released these held ones. Undo restores
  // both.
  std::unique_ptr<AgentOutput> replaced_;
  HeldOutputs released_;
  std::set<ReferenceTimer> timers_;
  Shares references_;  // of streaming prompts
  const SubmissionCheck check_{limits_, find_, outputs_, refusals_, references_};
  uint64_t serials_ = 0;  // of outputs so far
  AgentActions actions_;
};

}  // namespace baton
