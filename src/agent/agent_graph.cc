#include "agent/agent_graph.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "base/strings.h"
#include "kv/block_layout.h"

namespace baton {
namespace {

// What a prompt's client is told of an upstream's failure. What may be tried again stays so.
absl::Status UpstreamFailed(const RequestId& upstream, const absl::Status& status) {
  const bool may_retry = absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
  return absl::Status(may_retry ? status.code() : absl::StatusCode::kAborted,
                      absl::StrCat("output_of '", NameOf(upstream), "': ", absl::StatusCodeToString(status.code()),
                                   ": ", absl::string_view(status.message())));
}

const Reference* AsReference(const PromptSegment& segment) { return std::get_if<Reference>(&segment); }

}  // namespace

// --- requests ------------------------------------------------------------------------------------------------------

absl::Status AgentGraph::CheckUpstream(const Reference& reference) const {
  if (nodes_.contains(reference.upstream) || reference.announced) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("output_of: no request '", NameOf(reference.upstream),
                                          "' of this cache_salt is known here, or its output is kept no ", "longer (",
                                          absl::FormatDuration(limits_.keep_output), " after its end, and ",
                                          limits_.kept_bytes >> 20,
                                          " MiB of all outputs); set `announced` if it comes later"));
}

absl::Status AgentGraph::CheckReferences(const PromptSpec& spec) const {
  int64_t references = 0, announces = 0;
  for (const PromptSegment& segment : spec.segments) {
    const Reference* reference = AsReference(segment);
    if (reference == nullptr) continue;
    if (reference->upstream == spec.id) {
      return absl::InvalidArgumentError("output_of: a request cannot wait for itself");
    }
    RETURN_IF_ERROR(CheckUpstream(*reference));
    ++references;
    announces += !nodes_.contains(reference->upstream);
  }
  if (counts_.announced + announces > limits_.announced) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "output_of: ", counts_.announced, " requests are announced and not submitted, limit ", limits_.announced));
  }
  if (counts_.references + references > limits_.references) {
    return absl::ResourceExhaustedError(absl::StrCat("output_of: the prompts that wait at this router have ",
                                                     counts_.references, " references, limit ", limits_.references,
                                                     "; this one adds ", references));
  }
  if (!IsCycle(spec)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("output_of: a cycle: what '", NameOf(spec.id),
                                                 "' would wait for waits for '", NameOf(spec.id), "'"));
}

// Whether what the new prompt waits for waits, directly or not, for it.
bool AgentGraph::IsCycle(const PromptSpec& spec) const {
  if (!HasReaders(spec.id)) return false;  // the walk takes time linear in the references of all prompts
  absl::flat_hash_set<RequestId> seen;
  std::vector<RequestId> open;
  const auto visit = [&](const RequestId& id) {
    if (seen.insert(id).second) open.push_back(id);
  };
  for (const PromptSegment& segment : spec.segments) {
    if (const Reference* reference = AsReference(segment)) visit(reference->upstream);
  }
  while (!open.empty()) {
    const RequestId id = std::move(open.back());
    open.pop_back();
    if (id == spec.id) return true;
    for (const RequestId& upstream : UpstreamsOf(id)) visit(upstream);
  }
  return false;
}

absl::Status AgentGraph::CheckId(const RequestId& id) const {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return absl::OkStatus();
  const Node& node = *found->second;
  if (node.state == State::kLive) {
    return absl::AlreadyExistsError(absl::StrCat("request_id: '", NameOf(id), "' is in use by a live request"));
  }
  if (node.state == State::kOver && !node.readers.empty()) {
    return absl::AlreadyExistsError(
        absl::StrCat("request_id: a prompt still waits for the output of '", NameOf(id), "'"));
  }
  return absl::OkStatus();
}

// REQUIRES: CheckId is OK.
AgentGraph::Node& AgentGraph::Enter(const RequestId& id, const Tokenizer& tokenizer) {
  const auto found = nodes_.find(id);
  const bool is_over = found != nodes_.end() && found->second->state == State::kOver;
  replaced_ = is_over ? Drop(id) : nullptr;
  std::unique_ptr<Node>& slot = nodes_[id];
  if (slot == nullptr) {
    slot = std::make_unique<Node>();
  } else {  // announced
    timers_.erase({slot->expires, TimerKind::kNode, id, 0});
    slot->announced_until = std::exchange(slot->expires, absl::InfiniteFuture());
    --counts_.announced;
  }
  slot->state = State::kLive;
  slot->output = std::make_unique<Output>(tokenizer);
  return *slot;
}

absl::Status AgentGraph::Add(const RequestId& id, const Tokenizer& tokenizer) {
  RETURN_IF_ERROR(CheckId(id));
  Enter(id, tokenizer);
  return absl::OkStatus();
}

absl::StatusOr<PromptGrew> AgentGraph::Submit(PromptSpec spec, absl::Time now) {
  const RequestId id = spec.id;
  RETURN_IF_ERROR(CheckId(id));
  RETURN_IF_ERROR(CheckReferences(spec));
  Node& node = Enter(id, *spec.tokenizer);
  node.growing = std::make_unique<Growing>(Growing{.prompt = Prompt(std::move(spec)), .untold = {}, .deadlines = {}});
  Link(id, node, now);
  if (const absl::Status settled = SettleKnown(id, *node.growing); !settled.ok()) {
    Ended(id, settled, now);  // as if its upstream had failed a little later
    return settled;
  }
  absl::StatusOr<PromptGrew> grew = Grow(id, *node.growing);
  if (!grew.ok()) {
    Refused(id);
  } else if (grew->complete) {
    StopGrowing(id, node);
  }
  return grew;
}

void AgentGraph::Refused(const RequestId& id) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || found->second->state != State::kLive) return;
  Node& node = *found->second;
  StopGrowing(id, node);
  if (!node.readers.empty()) return Announce(id, node, node.announced_until);
  nodes_.erase(id);
  if (replaced_ != nullptr) {
    std::unique_ptr<Node>& slot = nodes_[id] = std::move(replaced_);
    Keep(id, *slot, slot->expires);
  }
}

// Its readers wait for it to be submitted.
void AgentGraph::Announce(const RequestId& id, Node& node, absl::Time until) {
  node.state = State::kAnnounced;
  node.output = nullptr;
  node.expires = until;
  timers_.insert({until, TimerKind::kNode, id, 0});
  ++counts_.announced;
}

// Joins the new prompt with its upstreams.
void AgentGraph::Link(const RequestId& id, Node& node, absl::Time now) {
  Growing& growing = *node.growing;
  ++counts_.growing;
  counts_.references += static_cast<int64_t>(growing.prompt.references());
  for (size_t i = 0; i < growing.prompt.references(); ++i) {
    const Reference& reference = growing.prompt.reference(i);
    std::unique_ptr<Node>& upstream = nodes_[reference.upstream];
    if (upstream == nullptr) {
      upstream = std::make_unique<Node>();
      Announce(reference.upstream, *upstream, now + limits_.wait_announced);
    }
    upstream->readers.insert(id);
    growing.upstreams[reference.upstream].push_back(i);
    growing.deadlines.push_back(now + reference.timeout);
    if (reference.timeout != absl::InfiniteDuration()) {
      timers_.insert({now + reference.timeout, TimerKind::kReference, id, i});
    }
  }
}

// Settles all that is over before any of the new prompt is told, so that it never begins anew for what was known.
absl::Status AgentGraph::SettleKnown(const RequestId& id, Growing& growing) {
  for (size_t i = 0; i < growing.prompt.references(); ++i) {
    const Node& upstream = *nodes_.at(growing.prompt.reference(i).upstream);
    if (upstream.state == State::kOver) RETURN_IF_ERROR(Settle(id, growing, i, upstream.output->status()));
  }
  return absl::OkStatus();
}

void AgentGraph::Made(const RequestId& id, std::span<const TokenId> tokens, std::string_view text) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || found->second->state != State::kLive) return;
  found->second->output->Push(tokens, text);
  std::vector<RequestId> waiting;  // Advance may fail one, and so change the readers
  for (const RequestId& reader : found->second->readers) {
    const Prompt& prompt = nodes_.at(reader)->growing->prompt;
    const std::optional<size_t> index = prompt.waits_for();
    if (index && prompt.reference(*index).upstream == id) waiting.push_back(reader);
  }
  for (const RequestId& reader : waiting) Advance(reader);
}

void AgentGraph::Ended(const RequestId& id, const absl::Status& status, absl::Time now) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || found->second->state != State::kLive) return;
  Node& node = *found->second;
  StopGrowing(id, node);
  node.output->Close(status);
  node.state = State::kOver;
  SettleReaders(id, status);
  Keep(id, node, now + limits_.keep_output);
}

void AgentGraph::EndedUnread(const RequestId& id) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || found->second->state != State::kLive) return;
  BATON_CHECK(found->second->readers.empty(), id);
  StopGrowing(id, *found->second);
  nodes_.erase(id);
}

// --- references ----------------------------------------------------------------------------------------------------

void AgentGraph::SettleReaders(const RequestId& upstream, const absl::Status& status) {
  const std::set<RequestId> readers = nodes_.at(upstream)->readers;
  for (const RequestId& reader : readers) {
    const std::vector<size_t> indices = nodes_.at(reader)->growing->upstreams.at(upstream);
    SettleAndAdvance(reader, indices, status);
  }
}

// All at once: what a prompt takes of one reference must not be void because of the next.
void AgentGraph::SettleAndAdvance(const RequestId& id, std::span<const size_t> indices, const absl::Status& status) {
  Growing& growing = *nodes_.at(id)->growing;
  for (const size_t index : indices) {
    if (const absl::Status settled = Settle(id, growing, index, status); !settled.ok()) return Fail(id, settled);
  }
  Advance(id);
}

// The output of a reference is complete, or will not be. Not OK: the prompt fails.
absl::Status AgentGraph::Settle(const RequestId& id, Growing& growing, size_t index, const absl::Status& status) {
  Prompt& prompt = growing.prompt;
  if (prompt.settled(index)) return absl::OkStatus();
  const Reference& reference = prompt.reference(index);
  const Node& upstream = *nodes_.at(reference.upstream);
  if (!status.ok() && reference.on_failure == OnFailure::kAbort) return UpstreamFailed(reference.upstream, status);
  if (!status.ok() && reference.on_failure == OnFailure::kSubstitute) {
    if (prompt.Replace(index, reference.substitute)) {
      growing.untold.clear();
      actions_.push_back(PromptRestarted{id});
    }
  } else if (upstream.state == State::kOver) {
    prompt.Settle(index);
  } else {
    const auto so_far =
        upstream.output == nullptr ? std::span<const TokenId>() : upstream.output->TokensFor(*prompt.spec().tokenizer);
    prompt.Cut(index, std::vector<TokenId>(so_far.begin(), so_far.end()));
  }
  return absl::OkStatus();
}

// What is to be told of the prompt now. Not OK: it fails.
absl::StatusOr<PromptGrew> AgentGraph::Grow(const RequestId& id, Growing& growing) const {
  Prompt& prompt = growing.prompt;
  const auto fresh = prompt.Take([&](const RequestId& upstream) -> OutputView {
    Output* output = nodes_.at(upstream)->output.get();
    return output == nullptr ? OutputView{} : OutputView{output->TokensFor(*prompt.spec().tokenizer)};
  });
  growing.untold.insert(growing.untold.end(), fresh.begin(), fresh.end());
  if (prompt.given() > prompt.spec().most_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("prompt: with the outputs it refers to it has at least ",
                                                   prompt.given(), " tokens, limit ", prompt.spec().most_tokens));
  }
  if (prompt.complete()) {
    if (prompt.given() == 0) return absl::InvalidArgumentError("prompt: is empty, expected at least one token");
    return PromptGrew{id, std::move(growing.untold), true};
  }
  const auto untold = static_cast<int64_t>(growing.untold.size());
  // A prompt's last token gets no KV in prefill, and this may be it: a block is complete with the token after it.
  const int64_t tell = untold - (prompt.given() + kBlockTokens - 1) % kBlockTokens;
  if (tell <= 0 || prompt.given() <= kBlockTokens) return PromptGrew{id, {}, false};
  PromptGrew grew{id, {growing.untold.begin(), growing.untold.begin() + tell}, false};
  growing.untold.erase(growing.untold.begin(), growing.untold.begin() + tell);
  return grew;
}

void AgentGraph::Advance(const RequestId& id) {
  Node& node = *nodes_.at(id);
  absl::StatusOr<PromptGrew> grew = Grow(id, *node.growing);
  if (!grew.ok()) return Fail(id, grew.status());
  if (grew->complete) StopGrowing(id, node);
  if (grew->complete || !grew->tokens.empty()) actions_.push_back(*std::move(grew));
}

void AgentGraph::Fail(const RequestId& id, const absl::Status& status) {
  StopGrowing(id, *nodes_.at(id));
  actions_.push_back(PromptFailed{id, status});
}

void AgentGraph::StopGrowing(const RequestId& id, Node& node) {
  if (node.growing == nullptr) return;
  const std::unique_ptr<Growing> growing = std::move(node.growing);
  --counts_.growing;
  counts_.references -= static_cast<int64_t>(growing->prompt.references());
  for (size_t i = 0; i < growing->deadlines.size(); ++i) {
    timers_.erase({growing->deadlines[i], TimerKind::kReference, id, i});
  }
  for (const auto& [upstream, indices] : growing->upstreams) {
    const auto found = nodes_.find(upstream);
    if (found == nodes_.end()) continue;
    found->second->readers.erase(id);
    // Nobody waits for it any more, and nobody has submitted it.
    if (found->second->state == State::kAnnounced && found->second->readers.empty()) Drop(upstream);
  }
}

// --- ends ----------------------------------------------------------------------------------------------------------

void AgentGraph::Keep(const RequestId& id, Node& node, absl::Time until) {
  node.expires = until;
  node.bytes = node.output->bytes();
  ++counts_.kept;
  counts_.kept_bytes += node.bytes;
  timers_.insert({until, TimerKind::kNode, id, 0});
  for (auto timer = timers_.begin(); counts_.kept_bytes > limits_.kept_bytes && timer != timers_.end();) {
    const auto& [time, kind, oldest, index] = *timer++;
    if (kind != TimerKind::kNode) continue;
    const Node& candidate = *nodes_.at(oldest);
    if (candidate.state == State::kOver && candidate.readers.empty()) Drop(RequestId(oldest));
  }
}

// REQUIRES: announced or over, and no reader still takes its output.
std::unique_ptr<AgentGraph::Node> AgentGraph::Drop(const RequestId& id) {
  const auto found = nodes_.find(id);
  std::unique_ptr<Node> node = std::move(found->second);
  timers_.erase({node->expires, TimerKind::kNode, id, 0});
  counts_.announced -= node->state == State::kAnnounced;
  counts_.kept -= node->state == State::kOver;
  counts_.kept_bytes -= node->bytes;
  nodes_.erase(found);
  return node;
}

// Workers are told once of what came at once, so that none begins a step with a part of it.
std::vector<AgentAction> AgentGraph::TakeActions() {
  std::vector<AgentAction> merged;
  absl::flat_hash_map<RequestId, size_t> grew;  // where in `merged`
  for (AgentAction& action : std::exchange(actions_, {})) {
    if (auto* more = std::get_if<PromptGrew>(&action)) {
      const auto [before, is_new] = grew.try_emplace(more->id, merged.size());
      if (!is_new) {
        auto& first = std::get<PromptGrew>(merged[before->second]);
        first.tokens.insert(first.tokens.end(), more->tokens.begin(), more->tokens.end());
        first.complete = more->complete;
        continue;
      }
    } else if (const auto* restarted = std::get_if<PromptRestarted>(&action)) {
      grew.erase(restarted->id);
    }
    merged.push_back(std::move(action));
  }
  return merged;
}

// --- time ----------------------------------------------------------------------------------------------------------

absl::Time AgentGraph::NextTick() const {
  return timers_.empty() ? absl::InfiniteFuture() : std::get<absl::Time>(*timers_.begin());
}

void AgentGraph::Tick(absl::Time now) {
  while (!timers_.empty() && std::get<absl::Time>(*timers_.begin()) <= now) {
    const auto [time, kind, id, index] = *timers_.begin();
    timers_.erase(timers_.begin());
    if (kind == TimerKind::kReference) {
      const size_t indices[] = {index};
      SettleAndAdvance(id, indices,
                       absl::DeadlineExceededError("its output was not complete before the reference's timeout"));
      continue;
    }
    Node& node = *nodes_.at(id);
    if (node.state == State::kAnnounced) {
      SettleReaders(id, absl::DeadlineExceededError(absl::StrCat("it was announced and not submitted for ",
                                                                 absl::FormatDuration(limits_.wait_announced))));
      if (nodes_.contains(id)) Drop(id);  // its last reader may have done so
    } else if (node.readers.empty()) {
      Drop(id);
    } else {
      // A prompt that comes to it later still reads it.
      node.expires = now + limits_.keep_output;
      timers_.insert({node.expires, TimerKind::kNode, id, 0});
    }
  }
}

bool AgentGraph::HasReaders(const RequestId& id) const {
  const auto found = nodes_.find(id);
  return found != nodes_.end() && !found->second->readers.empty();
}

std::vector<RequestId> AgentGraph::ReadersOf(const RequestId& id) const {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return {};
  return {found->second->readers.begin(), found->second->readers.end()};
}

std::vector<RequestId> AgentGraph::UpstreamsOf(const RequestId& id) const {
  std::vector<RequestId> upstreams;
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || found->second->growing == nullptr) return upstreams;
  const Growing& growing = *found->second->growing;
  for (const auto& [upstream, indices] : growing.upstreams) {
    if (!std::ranges::all_of(indices, [&](size_t i) { return growing.prompt.settled(i); }))
      upstreams.push_back(upstream);
  }
  std::ranges::sort(upstreams);  // so that runs repeat
  return upstreams;
}

void AgentGraph::CheckInvariants() const {
  Counts counts;
  size_t timers = 0;
  for (const auto& [id, node] : nodes_) {
    counts.announced += node->state == State::kAnnounced;
    counts.kept += node->state == State::kOver;
    counts.kept_bytes += node->bytes;
    BATON_CHECK((node->output == nullptr) == (node->state == State::kAnnounced), id);
    BATON_CHECK((node->expires == absl::InfiniteFuture()) == (node->state == State::kLive), id);
    BATON_CHECK(node->growing == nullptr || node->state == State::kLive, id);
    if (node->state != State::kLive) {
      ++timers;
      BATON_CHECK(timers_.contains({node->expires, TimerKind::kNode, id, 0}), id);
    }
    for (const RequestId& reader : node->readers) BATON_CHECK(nodes_.at(reader)->growing != nullptr, reader);
    if (node->growing == nullptr) continue;
    const Prompt& prompt = node->growing->prompt;
    ++counts.growing;
    counts.references += static_cast<int64_t>(prompt.references());
    for (size_t i = 0; i < prompt.references(); ++i) {
      const bool timed = timers_.contains({node->growing->deadlines[i], TimerKind::kReference, id, i});
      timers += timed;
      BATON_CHECK(timed || prompt.settled(i) || node->growing->deadlines[i] == absl::InfiniteFuture(), id);
    }
  }
  BATON_CHECK(counts == counts_ && timers == timers_.size(), "miscounted");
}

}  // namespace baton
