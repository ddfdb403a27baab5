#include "agent/agent_graph.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "agent/upstream_failure.h"
#include "base/check.h"
#include "base/retry.h"
#include "base/root_cause.h"
#include "base/status.h"
#include "base/strings.h"

namespace baton {
namespace {

// Returns whether the last attempt has failed, and the reference does not wait for another one.
bool HasFailedFor(const AgentOutput& output, const Reference& reference) {
  return output.state == AgentOutput::State::kAnnounced && output.current.text != nullptr && !reference.announced;
}

}  // namespace

bool AgentOutput::ById::operator()(const AgentNode* a, const AgentNode* b) const { return *a->id < *b->id; }

// --- requests ------------------------------------------------------------------------------------

std::unique_ptr<AgentOutput> AgentGraph::NewOutput(const RequestId& id) {
  return std::make_unique<AgentOutput>(AgentOutput{.id = id, .serial = ++serials_});
}

// Enters a request without references yet. REQUIRES: CheckId is OK.
void AgentGraph::Enter(AgentNode& node, std::unique_ptr<Output> text, bool is_value) {
  replaced_ = nullptr;
  released_ = holds_.Take(*node.id);
  refusals_.Erase(*node.id);
  const AgentOutput* found = outputs_.Find(*node.id);
  if (found != nullptr && found->state == State::kAnnounced) {
    node.output = outputs_.Drop(*node.id);
    node.output->announced_until = std::exchange(node.output->expires, absl::InfiniteFuture());
    node.output->former = std::move(node.output->current);
  } else {
    if (found != nullptr) replaced_ = outputs_.Drop(*node.id);
    node.output = NewOutput(*node.id);
    if (replaced_ != nullptr && !replaced_->status.ok()) node.output->attempts = replaced_->attempts;
  }
  node.attempt = ++node.output->attempts;
  node.output->current = {std::move(text), node.agent == nullptr ? "" : *node.agent, node.attempt};
  node.output->status = absl::OkStatus();
  node.output->refused = false;
  node.output->state = State::kLive;
  node.output->producer = &node;
  node.output->is_value = is_value;
  outputs_.bytes().Count(*node.output);
}

absl::Status AgentGraph::Add(AgentNode& node, const Tokenizer& tokenizer) {
  RETURN_IF_ERROR(check_.CheckId(node, /*is_value=*/false));
  Enter(node, std::make_unique<Output>(tokenizer), /*is_value=*/false);
  ReleaseHeld(released_);
  return absl::OkStatus();
}

absl::Status AgentGraph::AddValue(AgentNode& node, const Tokenizer* tokenizer) {
  RETURN_IF_ERROR(check_.CheckId(node, /*is_value=*/true));
  Enter(node, tokenizer == nullptr ? std::make_unique<Output>() : std::make_unique<Output>(*tokenizer),
        /*is_value=*/true);
  ReleaseHeld(released_);
  return absl::OkStatus();
}

absl::StatusOr<PromptIncrement> AgentGraph::Submit(AgentNode& node, const PromptSpec& spec, absl::Time now) {
  RETURN_IF_ERROR(check_.CheckId(node, /*is_value=*/false));
  RETURN_IF_ERROR(check_.CheckReferences(*node.id, spec, now));
  Enter(node, std::make_unique<Output>(*spec.tokenizer), /*is_value=*/false);
  node.streaming =
      std::make_unique<StreamingPrompt>(StreamingPrompt{.prompt = Prompt(spec), .kept = &outputs_.bytes()});
  Link(node, now);
  ReleaseHeld(released_);
  if (const absl::Status settled = SettleKnown(node, now); !settled.ok()) {
    // Downstream prompts see the same failure as if the upstream request had failed a little later.
    Ended(node, settled, now);
    return settled;
  }
  absl::StatusOr<StreamingPrompt::Tokens> known = node.streaming->Next();
  if (!known.ok()) {
    Undo(node);
    return known.status();
  }
  if (known->complete) StopStreaming(node);
  return PromptIncrement{&node, std::move(known->tokens), known->complete};
}

bool AgentGraph::IsUnknown(const RequestId& id, absl::Time now) const {
  const AgentOutput* output = check_.Find(id);
  const bool has_attempt = output != nullptr && (output->state != State::kAnnounced || !output->status.ok());
  return !has_attempt && refusals_.Find(id, now) == nullptr;
}

void AgentGraph::Undo(AgentNode& node) {
  if (node.output == nullptr) return;
  StopStreaming(node);
  actions_.Forget(node);
  actions_.ForgetUnneeded();
  for (const HeldOutput& held : released_.outputs) {
    if (AgentOutput* upstream = FindHeld(held)) ++upstream->needs;
  }
  holds_.Put(*node.id, std::exchange(released_, {}));
  std::unique_ptr<AgentOutput> output = std::move(node.output);
  if (!output->downstreams.empty() || output->former.text != nullptr) {
    --output->attempts;
    output->current = std::exchange(output->former, {});
    const absl::Time until = output->announced_until;
    outputs_.Announce(std::move(output), until);
    return;
  }
  if (replaced_ == nullptr) return;
  const absl::Time until = replaced_->expires;
  outputs_.Keep(std::move(replaced_), until);
}

void AgentGraph::Refused(const RequestId& id, const std::string& agent, const absl::Status& status,
                         absl::Duration retry_after, absl::Time now) {
  if (absl::IsAlreadyExists(status)) return;  // concerns a request that was accepted
  const absl::Time fails = MayRetry(status) ? RetryEnd(status, retry_after, now) : now;
  fails > now ? holds_.Extend(id, fails) : ReleaseHeld(holds_.Take(id));
  AgentOutput* output = check_.Find(id);
  if (output != nullptr && output->state != State::kAnnounced) return;
  const absl::Status cause = AsRootCause(status, NameOf(id), agent);
  refusals_.Put(id, {cause, agent, fails, fails + limits_.keep_output});
  if (output == nullptr) return;
  if (output->current.text == nullptr) output->current.agent = agent;
  if (fails <= now) return FailAnnounced(id, cause);
  output->status = cause;
  output->refused = true;
  output->retry_wait = fails - now;
  outputs_.Extend(*output, fails);
}

// Announces the upstream request of a reference. Returns null if the request counts as failed or
// unknown.
AgentOutput* AgentGraph::AnnounceFor(const Reference& reference, absl::Time now) {
  if (!check_.Announces(reference, now)) return nullptr;
  std::unique_ptr<AgentOutput> output = NewOutput(reference.upstream);
  const Refusal* refusal = refusals_.Find(reference.upstream, now);
  if (refusal != nullptr) {
    output->status = refusal->status;
    output->current.agent = refusal->agent;
    output->refused = true;
    output->retry_wait = refusal->fails - now;
  }
  return &outputs_.Announce(std::move(output), refusal == nullptr ? now + limits_.wait_announced : refusal->fails);
}

// Enters the new prompt's references in the outputs that they refer to.
void AgentGraph::Link(AgentNode& node, absl::Time now) {
  StreamingPrompt& streaming = *node.streaming;
  streaming_.insert(&node);
  references_.Add(OwnerOf(*node.id), static_cast<int64_t>(streaming.prompt.references()));
  for (size_t i = 0; i < streaming.prompt.references(); ++i) {
    const Reference& reference = streaming.prompt.reference(i);
    AgentOutput* upstream = check_.Find(reference.upstream);
    if (upstream == nullptr) upstream = AnnounceFor(reference, now);
    streaming.sources.push_back(upstream);
    streaming.settled_agents.emplace_back();
    streaming.needs.push_back(upstream != nullptr && !node.is_internal);
    if (upstream != nullptr) {
      upstream->needs += streaming.needs.back();
      upstream->downstreams.insert(&node);
      outputs_.bytes().Count(*upstream);
      streaming.upstreams[upstream].push_back(i);
    }
    streaming.deadlines.push_back(now + reference.timeout);
    if (reference.timeout != absl::InfiniteDuration()) {
      timers_.insert({now + reference.timeout, *node.id, i});
    }
  }
}

// Returns why the output of a reference cannot come. `refusal` is null if its request is unknown.
absl::Status AgentGraph::ReasonOf(const Reference& reference, const Refusal* refusal) const {
  if (refusal == nullptr) return check_.NotFound(reference);
  // The wait for a further submission is over, or there was none.
  return MayRetry(refusal->status) ? AfterRetries(refusal->status) : refusal->status;
}

// Settles all references to outputs of ended requests, and to refused and unknown requests. This
// happens before the first report of the new prompt, so these never cause a PromptRestarted.
absl::Status AgentGraph::SettleKnown(AgentNode& node, absl::Time now) {
  for (size_t i = 0; i < node.streaming->prompt.references(); ++i) {
    const AgentOutput* upstream = node.streaming->sources[i];
    if (upstream == nullptr) {
      const Reference& reference = node.streaming->prompt.reference(i);
      const Refusal* refusal = refusals_.Find(reference.upstream, now);
      if (refusal != nullptr) node.streaming->settled_agents[i] = refusal->agent;
      RETURN_IF_ERROR(Settle(node, i, ReasonOf(reference, refusal)));
    } else if (upstream->state == State::kEnded || HasFailedFor(*upstream, node.streaming->prompt.reference(i))) {
      RETURN_IF_ERROR(Settle(node, i, upstream->status));
    }
  }
  return absl::OkStatus();
}

void AgentGraph::BeginAfter(AgentNode& node, std::span<const TokenId> before, Thinking thinking) {
  if (node.output != nullptr) node.output->current.text->BeginAfter(before, thinking);
}

void AgentGraph::Made(AgentNode& node, std::span<const TokenId> tokens, std::string_view text) {
  if (node.output == nullptr || (tokens.empty() && text.empty())) return;
  node.output->current.text->Push(tokens, text);
  // Advance may fail a prompt, and so change node.output->downstreams.
  std::vector<AgentNode*> waiting = Supersede(*node.output);
  for (AgentNode* downstream : node.output->downstreams) {
    const std::optional<size_t> index = downstream->streaming->prompt.waits_for();
    if (index && downstream->streaming->sources[*index] == node.output.get()) waiting.push_back(downstream);
  }
  AdvanceAll(waiting);
}

void AgentGraph::Ended(AgentNode& node, const absl::Status& reported, absl::Time now, absl::Duration retry_after) {
  if (node.output == nullptr) return;
  AgentOutput& output = *node.output;
  const absl::Status status = reported.ok() ? reported : AsRootCause(reported, NameOf(*node.id), output.current.agent);
  const absl::Time until = RetryEnd(status, retry_after, now);
  if (MayRetry(status)) {
    holds_.Extend(*node.id, until);
    Hold(node, until);
  } else {
    ReleaseHeld(holds_.Take(*node.id));
  }
  StopStreaming(node);
  actions_.Forget(node);
  output.current.text->Close();
  output.producer = nullptr;
  output.status = status;
  // An attempt that fails without a token does not replace the one before.
  if (!status.ok() && output.former.text != nullptr) output.current = std::exchange(output.former, {});
  if (MayRetry(status) && !node.is_internal && outputs_.announced().HasRoom(OwnerOf(*node.id), 1)) {
    output.retry_wait = until - now;
    return AwaitRetry(node, status, until);
  }
  Supersede(output);
  output.state = State::kEnded;
  SettleDownstreams(output, status);
  outputs_.Keep(std::move(node.output), now + limits_.keep_output);
}

void AgentGraph::EndedWithoutOutput(AgentNode& node) {
  if (node.output == nullptr) return;
  BATON_CHECK(node.output->downstreams.empty(), *node.id);
  StopStreaming(node);
  actions_.Forget(node);
  outputs_.bytes().Remove(*node.output);
  node.output = nullptr;
}

// --- further attempts ----------------------------------------------------------------------------

// Returns the end of the wait for another submission of a request that failed.
absl::Time AgentGraph::RetryEnd(const absl::Status& status, absl::Duration retry_after, absl::Time now) const {
  return now + RetryDelayOf(status, retry_after) + limits_.wait_retry;
}

// Makes the request an announced one again. The prompts keep what they took of its output until
// another attempt has tokens.
void AgentGraph::AwaitRetry(AgentNode& node, const absl::Status& status, absl::Time until) {
  AgentOutput& output = outputs_.Announce(std::move(node.output), until);
  const std::vector<AgentNode*> downstreams(output.downstreams.begin(), output.downstreams.end());
  for (AgentNode* downstream : downstreams) {
    std::vector<size_t> indices = downstream->streaming->upstreams.at(&output);
    std::erase_if(indices, [&](size_t i) { return !HasFailedFor(output, downstream->streaming->prompt.reference(i)); });
    if (!indices.empty()) SettleAndAdvance(*downstream, indices, status);
  }
}

// Makes prompts use the present attempt. Returns the prompts that had taken tokens of the attempt
// before, which are void.
std::vector<AgentNode*> AgentGraph::Supersede(AgentOutput& output) {
  std::vector<AgentNode*> restarted;
  if (output.former.text == nullptr) return restarted;
  output.former = {};
  outputs_.bytes().Count(output);
  for (AgentNode* downstream : output.downstreams) {
    if (!downstream->streaming->Rewind(output)) continue;
    actions_.Add(PromptRestarted{downstream});
    restarted.push_back(downstream);
  }
  return restarted;
}

// Keeps the outputs that the prompt needs for the next attempt of its failed request.
void AgentGraph::Hold(const AgentNode& node, absl::Time until) {
  if (node.streaming == nullptr) return;
  HeldOutputs held{.until = until};
  for (size_t i = 0; i < node.streaming->needs.size(); ++i) {
    const AgentOutput* upstream = node.streaming->sources[i];
    if (!node.streaming->needs[i] || upstream->state != State::kLive) continue;
    held.outputs.push_back({*upstream->producer->id, upstream->serial});
  }
  if (!holds_.HasRoom(*node.id, held.outputs.size())) return;
  for (const HeldOutput& output : held.outputs) ++FindHeld(output)->needs;
  holds_.Put(*node.id, std::move(held));
}

void AgentGraph::ReleaseHeld(const HeldOutputs& held) {
  for (const HeldOutput& output : held.outputs) {
    if (AgentOutput* upstream = FindHeld(output)) Unneed(*upstream);
  }
}

// Returns null if the graph no longer has the output.
AgentOutput* AgentGraph::FindHeld(const HeldOutput& held) const {
  AgentOutput* output = check_.Find(held.id);
  return output == nullptr || output->serial != held.serial ? nullptr : output;
}

// --- references ----------------------------------------------------------------------------------

void AgentGraph::SettleDownstreams(AgentOutput& output, const absl::Status& status) {
  const std::vector<AgentNode*> downstreams(output.downstreams.begin(), output.downstreams.end());
  for (AgentNode* downstream : downstreams) {
    const std::vector<size_t> indices = downstream->streaming->upstreams.at(&output);
    SettleAndAdvance(*downstream, indices, status);
  }
}

// Settles all references before the prompt advances. Otherwise one reference could void tokens that
// were just taken for another.
void AgentGraph::SettleAndAdvance(AgentNode& node, std::span<const size_t> indices, const absl::Status& status) {
  for (const size_t index : indices) {
    if (const absl::Status settled = Settle(node, index, status); !settled.ok()) return Fail(node, settled);
  }
  Advance(node);
}

// Settles a reference as StreamingPrompt::Settle does, unless it is settled already.
absl::Status AgentGraph::Settle(AgentNode& node, size_t index, const absl::Status& status) {
  StreamingPrompt& streaming = *node.streaming;
  const Prompt& prompt = streaming.prompt;
  if (prompt.settled(index)) return absl::OkStatus();
  const AgentOutput* upstream = streaming.sources[index];
  if (upstream != nullptr && upstream->readable().number > 0) {
    node.used_attempts[prompt.reference(index).upstream] = upstream->readable().number;
  }
  const bool could_discard = prompt.may_discard();
  ASSIGN_OR_RETURN(const bool restarts, streaming.Settle(index, status));
  if (restarts) actions_.Add(PromptRestarted{&node});
  ReleaseReference(node, index);
  for (size_t i = 0; could_discard && !prompt.may_discard() && i < prompt.references(); ++i) {
    if (prompt.settled(i)) ReleaseReference(node, i);
  }
  return absl::OkStatus();
}

// A reference of the prompt needs its output no longer.
void AgentGraph::ReleaseReference(const AgentNode& node, size_t index) {
  StreamingPrompt& streaming = *node.streaming;
  if (!streaming.needs[index]) return;
  streaming.needs[index] = false;
  Unneed(*streaming.sources[index]);
}

void AgentGraph::Unneed(AgentOutput& upstream) {
  if (--upstream.needs == 0 && upstream.state == State::kLive) actions_.AddUnneeded(*upstream.producer);
}

// Advances prompts, except those that fail meanwhile.
void AgentGraph::AdvanceAll(std::span<AgentNode* const> nodes) {
  for (AgentNode* node : nodes) {
    if (node->streaming != nullptr) Advance(*node);
  }
}

void AgentGraph::Advance(AgentNode& node) {
  absl::StatusOr<StreamingPrompt::Tokens> next = node.streaming->Next();
  if (!next.ok()) return Fail(node, next.status());
  if (next->complete) StopStreaming(node);
  if (!next->complete && next->tokens.empty()) return;
  actions_.Add(PromptIncrement{&node, std::move(next->tokens), next->complete});
}

void AgentGraph::Fail(AgentNode& node, const absl::Status& status) {
  if (MayRetry(status)) Hold(node, absl::InfiniteFuture());  // until Ended
  StopStreaming(node);
  actions_.Add(PromptFailed{&node, status});
}

void AgentGraph::StopStreaming(AgentNode& node) {
  if (node.streaming == nullptr) return;
  for (size_t i = 0; i < node.streaming->needs.size(); ++i) ReleaseReference(node, i);
  const std::unique_ptr<StreamingPrompt> streaming = std::move(node.streaming);
  streaming_.erase(&node);
  references_.Add(OwnerOf(*node.id), -static_cast<int64_t>(streaming->prompt.references()));
  for (size_t i = 0; i < streaming->deadlines.size(); ++i) {
    timers_.erase({streaming->deadlines[i], *node.id, i});
  }
  for (const auto& [upstream, indices] : streaming->upstreams) {
    upstream->downstreams.erase(&node);
    outputs_.bytes().Count(*upstream);
    // No prompt refers to the announced request now, and no client has submitted it.
    if (upstream->state == State::kAnnounced && upstream->current.text == nullptr && upstream->downstreams.empty()) {
      outputs_.Drop(RequestId(upstream->id));
    }
  }
}

AgentGraph::Counts AgentGraph::counts() const {
  return {.streaming = std::ssize(streaming_),
          .references = references_.total(),
          .announced = outputs_.announced().total(),
          .kept = outputs_.kept(),
          .kept_bytes = outputs_.bytes().total()};
}

// --- memory --------------------------------------------------------------------------------------

std::vector<AgentAction> AgentGraph::TakeActions() {
  while (AgentOutput* output = outputs_.bytes().Excess()) Drop(*output);
  return actions_.Take();
}

// Frees the memory of an output that no live request generates.
void AgentGraph::Drop(AgentOutput& output) {
  // The prompts go on with the present attempt.
  if (output.state == State::kLive) return AdvanceAll(Supersede(output));
  const std::vector<AgentNode*> downstreams(output.downstreams.begin(), output.downstreams.end());
  for (AgentNode* downstream : downstreams) {
    if (!downstream->streaming->Reads(output)) {
      downstream->streaming->Unlink(output);
      output.downstreams.erase(downstream);
      continue;
    }
    Fail(*downstream, absl::ResourceExhaustedError(StrCat(
                          downstream->streaming->prompt.spec().path, ": the outputs that waiting prompts of this ",
                          "tenant refer to need more than its share of ", limits_.kept_bytes >> 20, " MiB")));
  }
  outputs_.Drop(RequestId(output.id));
}

// --- time ----------------------------------------------------------------------------------------

absl::Time AgentGraph::NextTick() const {
  const absl::Time reference = timers_.empty() ? absl::InfiniteFuture() : std::get<absl::Time>(*timers_.begin());
  return std::min({reference, outputs_.NextExpiry().first, holds_.NextExpiry().first});
}

void AgentGraph::Tick(absl::Time now) {
  while (NextTick() <= now) {
    if (const auto [end, failed] = holds_.NextExpiry(); end <= now) {
      ReleaseHeld(holds_.Take(failed));
      continue;
    }
    const auto [expiry, id] = outputs_.NextExpiry();
    if (timers_.empty() || expiry <= std::get<absl::Time>(*timers_.begin())) {
      Expire(id, now);
      continue;
    }
    const auto [timeout, reader, index] = *timers_.begin();
    timers_.erase(timers_.begin());
    const size_t indices[] = {index};
    SettleAndAdvance(*find_(reader), indices,
                     absl::DeadlineExceededError("the output was not complete before the reference's timeout"));
  }
}

void AgentGraph::Expire(const RequestId& id, absl::Time now) {
  AgentOutput& output = *outputs_.Find(id);
  if (output.state == State::kAnnounced) {
    const absl::Status late =
        absl::DeadlineExceededError(absl::StrCat("the request was announced, and not submitted to this router for ",
                                                 absl::FormatDuration(limits_.wait_announced)));
    FailAnnounced(id, output.status.ok() ? late : AfterRetries(output.status));
  } else if (output.downstreams.empty()) {
    outputs_.Drop(id);
  } else {
    // A prompt has not reached this reference yet and will read the output later.
    outputs_.Extend(output, now + limits_.keep_output);
  }
}

// Ends the wait for an announced request. The output of an attempt is kept, as after its end.
void AgentGraph::FailAnnounced(const RequestId& id, const absl::Status& status) {
  outputs_.Find(id)->status = status;
  SettleDownstreams(*outputs_.Find(id), status);
  if (outputs_.Find(id) == nullptr) return;  // the last downstream prompt dropped it
  std::unique_ptr<AgentOutput> output = outputs_.Drop(id);
  // The remaining prompts have settled their references to the output and go on without it.
  for (AgentNode* downstream : std::exchange(output->downstreams, {})) downstream->streaming->Unlink(*output);
  if (output->current.text == nullptr) return;
  const absl::Time until = output->expires + limits_.keep_output;
  outputs_.Keep(std::move(output), until);
}

std::vector<AgentNode*> AgentGraph::DownstreamsOf(const AgentNode& node) {
  if (node.output == nullptr) return {};
  return {node.output->downstreams.begin(), node.output->downstreams.end()};
}

std::vector<AgentNode*> AgentGraph::UpstreamsOf(const AgentNode& node) {
  std::vector<AgentNode*> nodes;
  if (node.streaming == nullptr) return nodes;
  for (const auto& [upstream, indices] : node.streaming->upstreams) {
    if (upstream->producer != nullptr && node.streaming->WaitsFor(*upstream)) nodes.push_back(upstream->producer);
  }
  std::ranges::sort(nodes, AgentOutput::ById());  // so that runs repeat
  return nodes;
}

void AgentGraph::CheckInvariants() const {
  outputs_.CheckInvariants();
  refusals_.CheckInvariants();
  holds_.CheckInvariants();
  Shares references(limits_.references);
  size_t timers = 0;
  absl::flat_hash_map<const AgentOutput*, int64_t> needs;
  for (const AgentNode* node : streaming_) {
    BATON_CHECK(node->streaming != nullptr && node->output != nullptr && node->output->producer == node, *node->id);
    const Prompt& prompt = node->streaming->prompt;
    references.Add(OwnerOf(*node->id), static_cast<int64_t>(prompt.references()));
    for (const auto& [upstream, indices] : node->streaming->upstreams) {
      BATON_CHECK(upstream->downstreams.contains(const_cast<AgentNode*>(node)), *node->id);
    }
    for (size_t i = 0; i < prompt.references(); ++i) {
      const absl::Time deadline = node->streaming->deadlines[i];
      const bool timed = timers_.contains({deadline, *node->id, i});
      timers += timed;
      BATON_CHECK(timed || prompt.settled(i) || deadline == absl::InfiniteFuture(), *node->id);
      BATON_CHECK(prompt.settled(i) || node->streaming->sources[i] != nullptr, *node->id);
      BATON_CHECK(node->streaming->needs[i] == (!prompt.settled(i) && !node->is_internal), *node->id);
      if (node->streaming->needs[i]) ++needs[node->streaming->sources[i]];
    }
  }
  holds_.ForEach([&](const HeldOutput& held) {
    if (const AgentOutput* output = FindHeld(held)) ++needs[output];
  });
  for (const auto& [output, count] : needs) BATON_CHECK(output->needs == count, "the needs of an output are wrong");
  BATON_CHECK(references == references_ && timers == timers_.size(), "the counts of the graph are wrong");
}

}  // namespace baton
