#include "engine/prefill/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "engine/copy_forecast.h"
#include "kv/block_layout.h"
#include "kv/prefix_key.h"

namespace baton {
namespace {

// The new blocks of an early hand-off are at least 1/8 of the blocks sent before, because each
// early hand-off lists all blocks from the first on.
constexpr int64_t kAheadShare = 8;
// Upper bound on early hand-offs in flight, so that hand-offs of closed prompts come first.
constexpr int64_t kMostAhead = 4;
// Upper bound on early hand-offs that the engine remembers.
constexpr size_t kAheadRemembered = 4096;

// Returns how many of a prompt's tokens get KV. These are all but the last token, which the decode
// worker's first step runs. `whole_blocks`: rounds down to whole blocks, because the KV stays in
// the cache.
int64_t KvTokens(int64_t tokens, bool whole_blocks) {
  const int64_t kv_tokens = std::max<int64_t>(tokens - 1, 0);
  return whole_blocks ? kv_tokens - kv_tokens % kBlockTokens : kv_tokens;
}

}  // namespace

PrefillEngine::PrefillEngine(PrefillEngineOptions options)
    : options_(std::move(options)),
      pool_(options_.blocks),
      tree_(pool_),
      step_cost_(options_.fixed_tokens),
      scheduler_(pool_, tree_, options_.step_tokens, CurrentLimits(),
                 {.leased = static_cast<int64_t>(options_.leased_share * static_cast<double>(options_.blocks)),
                  .staging = options_.staging}),
      sender_(options_.sender) {}

StreamingLimits PrefillEngine::CurrentLimits() const {
  constexpr double kFixedShare = 0.25, kFixedShareAlone = 0.67, kMostFixed = 0.5;
  StreamingLimits limits;
  limits.increment = options_.increment;
  if (limits.increment == 0) limits.increment = step_cost_.WorthwhileTokens(kFixedShare);
  const int64_t within = step_cost_.TokensWithin(options_.streaming_step, options_.step_tokens);
  const int64_t worthwhile = std::max(step_cost_.WorthwhileTokens(kMostFixed), int64_t{kBlockTokens});
  limits.step_tokens = std::min(std::max(within, worthwhile), options_.step_tokens);
  limits.increment = std::min(limits.increment, limits.step_tokens);
  limits.alone = std::min(step_cost_.WorthwhileTokens(kFixedShareAlone), limits.increment);
  return limits;
}

// Checks tokens that are appended to a prompt of `before` tokens. The prompt must then have at
// least `least` tokens.
absl::Status PrefillEngine::CheckTokens(std::span<const TokenId> tokens, int64_t before, int64_t least) const {
  const int64_t all = before + std::ssize(tokens);
  if (all < least || all > options_.context) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: expected 1 to ", options_.context, " tokens (the context length), got ", all));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= options_.vocab) {
      return absl::InvalidArgumentError(absl::StrCat("tokens[", before + static_cast<int64_t>(i),
                                                     "]: expected an id in [0, ", options_.vocab, "), got ",
                                                     tokens[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status PrefillEngine::Validate(const PrefillJob& job) const {
  RETURN_IF_ERROR(CheckTokens(job.spec.tokens, 0, job.streaming ? 0 : 1));
  if (job.spec.sampling.max_tokens < 0) {
    return absl::InvalidArgumentError(absl::StrCat("max_tokens: expected >= 0, got ", job.spec.sampling.max_tokens));
  }
  if (scheduler_.Find(job.request_id) != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("request_id: ", job.request_id, " is in use by a running request"));
  }
  const bool yields = job.streaming || IsLowPriority(job.spec.priority);
  const int64_t there = yields ? yielding_ : std::ssize(scheduler_.prompts()) - yielding_;
  // Low-priority jobs leave half of the limit to streaming prompts of clients.
  const int64_t most = IsLowPriority(job.spec.priority) ? options_.max_requests / 2 : options_.max_requests;
  if (there >= most) {
    return absl::ResourceExhaustedError(absl::StrCat("this prefill worker has ", there, " requests",
                                                     yields ? " with streaming prompts or low priority" : "",
                                                     ", limit ", most));
  }
  return absl::OkStatus();
}

std::optional<RequestFailed> PrefillEngine::Add(PrefillJob job, absl::Time now) {
  const auto refuse = [&](const absl::Status& status) {
    const bool retry = absl::IsResourceExhausted(status);
    return RequestFailed{job.request_id, status, retry ? options_.overload_retry : absl::ZeroDuration()};
  };
  if (const absl::Status status = Validate(job); !status.ok()) return refuse(status);

  if (job.streaming) {
    AddStreaming(std::move(job), now);
    return std::nullopt;
  }
  const bool prefill_only = job.decode_worker.empty();
  const absl::Time queue_order = now + job.spec.arrival_offset;
  PrefillPrompt prompt{
      .id = job.request_id,
      .spec = std::move(job.spec),
      .queue_order = queue_order,
      .engine = {.prefill_only = prefill_only, .lease = job.lease, .lease_holder = job.lease_holder, .added = now}};
  prompt.kv_tokens = KvTokens(std::ssize(prompt.spec.tokens), /*whole_blocks=*/prefill_only);
  prompt.keys = NextKeys(prompt, prompt.spec.tokens, prompt.kv_tokens);
  if (const absl::Status status = scheduler_.Add(std::move(prompt)); !status.ok()) return refuse(status);

  const PrefillPrompt& added = scheduler_.prompt(job.request_id);
  yielding_ += added.Yields();
  if (!prefill_only) {
    sender_.Begin(std::move(job.decode_worker),
                  {.request_id = added.id,
                   .keys = added.keys,
                   .kv_tokens = static_cast<int32_t>(added.kv_tokens),
                   .expected_new_tokens = added.spec.expected_tokens},
                  now);
  }
  NoteComplete(job.request_id, now);  // a prompt of one token needs no KV
  return std::nullopt;
}

// Returns the keys of the full blocks from the first without a key to `kv_tokens`.
std::vector<BlockKey> PrefillEngine::NextKeys(const PrefillPrompt& prompt, std::span<const TokenId> tokens,
                                              int64_t kv_tokens) const {
  const BlockKey last =
      prompt.keys.empty() ? RootKey(options_.sender.self.module_digest, prompt.spec.cache_domain) : prompt.keys.back();
  return BlockKeys(last, tokens.first(static_cast<size_t>(kv_tokens)).subspan(prompt.keys.size() * kBlockTokens));
}

void PrefillEngine::AddStreaming(PrefillJob job, absl::Time now) {
  const RequestId id = job.request_id;
  TokenBuffer tokens = std::exchange(job.spec.tokens, {});
  const absl::Time queue_order = now + job.spec.arrival_offset;
  AddEmpty({.id = id,
            .spec = std::move(job.spec),
            .queue_order = queue_order,
            .streaming = true,
            .engine = {.prefill_only = true,
                       .lease_holder = job.lease_holder,
                       .added = now,
                       .ahead = {.to = std::move(job.decode_worker)}}});
  ++yielding_;
  Append({.request_id = id, .tokens = std::move(tokens)}, now);
}

void PrefillEngine::AddEmpty(PrefillPrompt prompt) {
  const absl::Status added = scheduler_.Add(std::move(prompt));
  BATON_CHECK(added.ok(), added.ToString());  // a prompt without tokens always fits
}

// Replaces the prompt by an empty one, which keeps the engine's part. The running step may still
// use the old prompt's blocks, and its full blocks stay in the cache.
void PrefillEngine::Restart(const RequestId& id) {
  const PrefillPrompt& before = scheduler_.prompt(id);
  PrefillPrompt prompt{.id = id,
                       .spec = before.spec,
                       .queue_order = before.queue_order,
                       .streaming = true,
                       .engine = std::move(*scheduler_.FindEngine(id)),
                       .counters = {.dropped = before.counters.dropped + before.counters.computed}};
  prompt.spec.tokens = {};
  prompt.engine.ahead.sent = 0;
  scheduler_.Remove(id);
  AddEmpty(std::move(prompt));
}

void PrefillEngine::Append(PrefillAppend append, absl::Time now) {
  const PrefillPrompt* const prompt = scheduler_.Find(append.request_id);
  if (prompt == nullptr || !prompt->engine.failure.ok() || !prompt->streaming) return;
  if (append.restart) Restart(append.request_id);
  if (const absl::Status status = Extend(append); !status.ok()) return Fail(append.request_id, status, now);
  if (append.arrival_offset) scheduler_.SetQueueOrder(append.request_id, now + *append.arrival_offset);
  if (append.last) Close(append, now);
}

absl::Status PrefillEngine::Extend(const PrefillAppend& append) {
  const PrefillPrompt& prompt = scheduler_.prompt(append.request_id);
  RETURN_IF_ERROR(CheckTokens(append.tokens, std::ssize(prompt.spec.tokens), append.last ? 1 : 0));
  TokenBuffer tokens = prompt.spec.tokens.empty() ? append.tokens : prompt.spec.tokens;
  if (!prompt.spec.tokens.empty()) tokens.Append(append.tokens);
  const int64_t kv_tokens = KvTokens(std::ssize(tokens), !append.last || append.decode_worker.empty());
  const std::vector<BlockKey> keys = NextKeys(prompt, tokens, kv_tokens);
  return scheduler_.Extend(append.request_id, std::move(tokens), kv_tokens, keys, append.last);
}

void PrefillEngine::Close(const PrefillAppend& append, absl::Time now) {
  const PrefillPrompt& prompt = scheduler_.prompt(append.request_id);
  PrefillPrompt::EnginePart& part = *scheduler_.FindEngine(append.request_id);
  if (!prompt.Yields()) --yielding_;  // a streaming prompt yields, and this one has closed
  part.added = now;
  part.copied = absl::ZeroDuration();
  part.prefill_only = append.decode_worker.empty();
  part.lease = append.lease;
  if (prompt.planned > prompt.done) NoteStarted(append.request_id, now);  // by the running step
  if (!part.prefill_only) {
    sender_.Begin(append.decode_worker,
                  {.request_id = append.request_id,
                   .keys = prompt.keys,
                   .kv_tokens = static_cast<int32_t>(prompt.kv_tokens),
                   .expected_new_tokens = append.expected_new_tokens},
                  now);
  }
  OnProgress(now, now);
  NoteComplete(append.request_id, now);
}

void PrefillEngine::SendAhead(const PrefillPrompt& prompt, absl::Time now) {
  PrefillPrompt::Ahead& ahead = scheduler_.FindEngine(prompt.id)->ahead;
  if (!prompt.streaming || ahead.to.empty() || ahead.part != 0 || ahead.waits || now < ahead.again) return;
  const int64_t blocks = prompt.done / kBlockTokens;
  if (blocks < ahead.sent + std::max(options_.least_ahead, ahead.sent / kAheadShare)) return;
  const auto keys = std::span<const BlockKey>(prompt.keys).first(static_cast<size_t>(blocks));
  if (std::ssize(ahead_) >= kMostAhead) {
    ahead.waits = true;
    ahead_waits_.push_back(prompt.id);
    return;
  }
  ahead.sent = blocks;
  if (ahead_sent_.size() >= kAheadRemembered) ahead_sent_.clear();
  if (!ahead_sent_.emplace(ahead.to, keys.back()).second) return;
  ahead.part = ++parts_made_;
  ahead_[ahead.part] = {.request = prompt.id, .to = ahead.to, .blocks = blocks, .last = keys.back()};
  sender_.Begin(ahead.to,
                {.request_id = prompt.id,
                 .keys = {keys.begin(), keys.end()},
                 .kv_tokens = static_cast<int32_t>(blocks * kBlockTokens),
                 .expected_new_tokens = 0},
                now, ahead.part);
}

// Pushes the blocks of an early hand-off, since the decode worker has room. Cancels the hand-off
// instead if the prompt has ended, closed, restarted or given blocks back since the hand-off began.
void PrefillEngine::AheadReserved(uint64_t part, absl::Time now) {
  AheadPart& ahead = ahead_.at(part);
  const PrefillPrompt* const prompt = scheduler_.Find(ahead.request);
  const bool stands = prompt != nullptr && prompt->streaming && prompt->engine.ahead.part == part &&
                      prompt->engine.ahead.sent == ahead.blocks && prompt->done >= ahead.blocks * kBlockTokens;
  if (!stands) return sender_.Cancel(ahead.request, now, part);
  std::vector<ReadyBlock> ready;
  const auto blocks = prompt->table.ids().first(static_cast<size_t>(ahead.blocks));
  for (int32_t i = 0; const BlockId block : blocks) {
    ahead.sources.push_back(pool_.Share(block));
    ready.push_back({i++, block, options_.sender.self.layout.layers});
  }
  sender_.BlocksReady(ahead.request, ready, now, part);
}

void PrefillEngine::AheadEnded(uint64_t part, int64_t bytes, const absl::Status& status, absl::Time again,
                               absl::Time now) {
  const AheadPart ended = std::move(ahead_.extract(part).mapped());
  totals_.bytes_pushed += bytes;
  if (!status.ok()) ahead_sent_.erase({ended.to, ended.last});
  PrefillPrompt::EnginePart* const engine_part = scheduler_.FindEngine(ended.request);
  if (engine_part != nullptr && engine_part->ahead.part == part) {
    PrefillPrompt::Ahead& ahead = engine_part->ahead;
    ahead.part = 0;
    ahead.bytes += bytes;
    // If the decode worker has no room, `sent` stays. The worker is therefore asked again only when
    // the prompt has gained the blocks of another early hand-off.
    if (!status.ok() && !absl::IsResourceExhausted(status)) ahead.sent = 0;
    if (absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status)) ahead.to.clear();
    ahead.again = again;
    SendAhead(scheduler_.prompt(ended.request), now);
  }
  while (!ahead_waits_.empty() && std::ssize(ahead_) < kMostAhead) {
    const RequestId id = std::move(ahead_waits_.front());
    ahead_waits_.pop_front();
    PrefillPrompt::EnginePart* const waiting = scheduler_.FindEngine(id);
    if (waiting != nullptr && std::exchange(waiting->ahead.waits, false)) SendAhead(scheduler_.prompt(id), now);
  }
}

void PrefillEngine::Cancel(const RequestId& id, absl::Time now) {
  HandleSender(now);  // so that a result that the sender already has stands
  Fail(id, absl::CancelledError("the request was cancelled"), now);
}

void PrefillEngine::FailYielding(const absl::Status& status, absl::Time now) {
  std::vector<RequestId> ids;
  for (const PrefillPrompt& prompt : scheduler_.prompts()) {
    if (prompt.Yields()) ids.push_back(prompt.id);
  }
  for (const RequestId& id : ids) Fail(id, status, now);
}

void PrefillEngine::FailAll(const absl::Status& status, absl::Time now) {
  HandleSender(now);  // so that results that the sender already has stand
  std::vector<RequestId> ids;
  for (const PrefillPrompt& prompt : scheduler_.prompts()) ids.push_back(prompt.id);
  for (const RequestId& id : ids) Fail(id, status, now);
  for (const auto& [part, ahead] : ahead_) sender_.Cancel(ahead.request, now, part);
  scheduler_.leases().EndAll();
  scheduler_.session_protections().EndAll();
}

void PrefillEngine::Tick(absl::Time now) {
  sender_.Tick(now);
  scheduler_.leases().Tick(now);
  scheduler_.session_protections().Tick(now);
  scheduler_.staging().Tick(now);
}

const Batch* PrefillEngine::StartStep(absl::Time now) {
  const Batch& batch = scheduler_.PlanStep();
  step_started_ = now;
  step_copied_ = absl::ZeroDuration();
  const auto& [out, in] = scheduler_.staging().copies();
  step_copies_ = CopyForecast((std::ssize(out) + std::ssize(in)) * options_.sender.self.layout.BlockBytes());
  step_computes_ = 0;
  for (const SequenceSlice& slice : batch.slices) step_computes_ += std::ssize(slice.tokens);
  OnProgress(now, now);
  scheduler_.step().ForEachInStep([&](const RequestId& id, int64_t) {
    const PrefillPrompt* const prompt = scheduler_.Find(id);
    if (prompt != nullptr && !prompt->streaming) NoteStarted(id, now);
  });
  return scheduler_.step_running() ? &batch : nullptr;
}

void PrefillEngine::CopiesDone(absl::Duration took) {
  step_copied_ = took;
  step_copies_ = absl::ZeroDuration();
  scheduler_.staging().CopiesDone(took);
}

void PrefillEngine::LayerDone(int64_t layer, absl::Time now) {
  for (const auto& slice : scheduler_.step().LastSlices()) {
    PushReady(scheduler_.prompt(slice.request_id), slice, layer + 1, now);
  }
}

void PrefillEngine::FinishStep(const absl::Status& status, absl::Time now) {
  ++totals_.steps;
  if (status.ok() && step_computes_ > 0) {
    step_cost_.Add(step_computes_, now - step_started_ - step_copied_,
                   2 * scheduler_.step().yielding_tokens() > step_computes_);
    scheduler_.streaming().Limit(CurrentLimits());
    scheduler_.staging().SetComputeTime(step_cost_.TimeAdded(kBlockTokens));
  }
  NoteStep(now);
  for (const RequestId& id : scheduler_.FinishStep(status.ok())) {
    Fail(id, absl::InternalError(absl::StrCat("the forward pass failed: ", status.ToString())), now);
  }
  OnProgress(step_started_, now);
}

// Reports once that a closed prompt has left the queue at `at`, when its step began or without one.
void PrefillEngine::NoteStarted(const RequestId& id, absl::Time at) {
  PrefillPrompt::EnginePart& part = *scheduler_.FindEngine(id);
  if (part.started == absl::InfiniteFuture()) actions_.push_back(PrefillStarted{id});
  part.started = std::min(part.started, std::max(at, part.added));
}

// Records the running step for the requests that gain KV in it. `only`: for this request alone,
// unless null.
void PrefillEngine::NoteStep(absl::Time now, const RequestId* only) {
  scheduler_.step().ForEachInStep([&](const RequestId& id, int64_t tokens) {
    if (only != nullptr && id != *only) return;
    PrefillPrompt::EnginePart* const part = scheduler_.FindEngine(id);
    if (part == nullptr) return;
    part->steps.Add(step_started_, now, static_cast<int32_t>(tokens));
    // The prompt may have been added, or closed, during the step's copies.
    part->copied += std::clamp(step_started_ + step_copied_ - part->added, absl::ZeroDuration(), step_copied_);
  });
}

void PrefillEngine::OnProgress(absl::Time step_started, absl::Time now) {
  for (const auto& progress : scheduler_.progress().Take()) {
    // An earlier part of its progress may have ended the request.
    if (scheduler_.Find(progress.request_id) == nullptr) continue;
    NoteStarted(progress.request_id, step_started);
    PushReady(scheduler_.prompt(progress.request_id), progress, options_.sender.self.layout.layers, now);
    NoteComplete(progress.request_id, now);
  }
  for (const RequestId& id : scheduler_.progress().TakeStreaming()) {
    if (const PrefillPrompt* const prompt = scheduler_.Find(id)) SendAhead(*prompt, now);
  }
}

void PrefillEngine::PushReady(const PrefillPrompt& prompt, const PrefillProgress& progress, int64_t layers,
                              absl::Time now) {
  if (prompt.engine.prefill_only) return;
  const auto blocks = prompt.table.ids();
  std::vector<ReadyBlock> ready;
  for (int64_t i = progress.begin / kBlockTokens; i < BlocksFor(progress.end); ++i) {
    ready.push_back({static_cast<int32_t>(i), blocks[static_cast<size_t>(i)], layers});
  }
  sender_.BlocksReady(prompt.id, ready, now);
}

void PrefillEngine::NoteComplete(const RequestId& id, absl::Time now) {
  if (!scheduler_.IsComplete(id)) return;
  PrefillPrompt::EnginePart& part = *scheduler_.FindEngine(id);
  NoteStarted(id, now);
  part.computed = std::min(part.computed, now);
  if (!part.prefill_only) return;
  PrefillDone done;
  done.request_id = id;
  done.blocks = static_cast<int32_t>(BlocksFor(scheduler_.prompt(id).kv_tokens));
  Done(std::move(done), now);
}

std::vector<PrefillAction> PrefillEngine::TakeActions(absl::Time now) {
  HandleSender(now);
  return std::exchange(actions_, {});
}

void PrefillEngine::HandleSender(absl::Time now) {
  for (auto actions = sender_.TakeActions(); !actions.empty(); actions = sender_.TakeActions()) {
    for (SenderAction& action : actions) {
      std::visit([&](auto& concrete) { Handle(std::move(concrete), now); }, action);
    }
  }
}

template <typename Action>
void PrefillEngine::Handle(Action action, absl::Time) {
  actions_.push_back(std::move(action));
}

void PrefillEngine::Handle(HandoffReserved reserved, absl::Time now) {
  if (reserved.part != 0) return AheadReserved(reserved.part, now);
  if (scheduler_.Find(reserved.request_id) == nullptr) return;
  const int64_t wanted = reserved.missing.empty() ? 0 : (int64_t{reserved.missing.back()} + 1) * kBlockTokens;
  scheduler_.Limit(reserved.request_id, wanted);
  OnProgress(now, now);
  NoteComplete(reserved.request_id, now);
}

void PrefillEngine::Handle(HandoffCommitted committed, absl::Time now) {
  if (committed.part != 0) return AheadEnded(committed.part, committed.bytes_pushed, absl::OkStatus(), now, now);
  totals_.bytes_pushed += committed.bytes_pushed;
  PrefillDone done;
  done.request_id = std::move(committed.request_id);
  done.reservation = committed.reservation;
  done.decode_incarnation = committed.decode_incarnation;
  done.blocks = committed.blocks;
  done.bytes_pushed = committed.bytes_pushed;
  Done(std::move(done), now);
}

void PrefillEngine::Handle(HandoffFailed failed, absl::Time now) {
  if (failed.part != 0) return AheadEnded(failed.part, 0, failed.status, now + failed.retry_after, now);
  const absl::Status& failure = scheduler_.prompt(failed.request_id).engine.failure;
  if (!failure.ok()) failed = {failed.request_id, failure, absl::ZeroDuration()};
  // A lost decode worker may be back before this worker reaches it. The router may then try again,
  // as it does if there is no room.
  const bool lost = absl::IsUnavailable(failed.status) && failed.retry_after > absl::ZeroDuration();
  const bool no_room = absl::IsResourceExhausted(failed.status) || lost;
  Failed({failed.request_id, failed.status, failed.retry_after, no_room});
}

void PrefillEngine::Fail(const RequestId& id, const absl::Status& status, absl::Time now) {
  PrefillPrompt::EnginePart* const part = scheduler_.FindEngine(id);
  if (part == nullptr || !part->failure.ok()) return;
  part->failure = status;
  if (part->prefill_only) {
    Failed({id, status, absl::ZeroDuration()});
  } else {
    scheduler_.Stop(id);
    sender_.Cancel(id, now);
  }
}

void PrefillEngine::Done(PrefillDone done, absl::Time now) {
  const PrefillPrompt* const prompt = scheduler_.Find(done.request_id);
  BATON_CHECK(prompt != nullptr, "a hand-off without a request");
  PrefillPrompt::EnginePart& part = *scheduler_.FindEngine(done.request_id);
  const PrefillCounters& counters = prompt->counters;
  done.cached_tokens = counters.cached + counters.from_host + counters.from_disk;
  done.shared_tokens = counters.shared;
  done.computed_tokens = counters.computed;
  const PrefillTokens tokens = TokensOf(*prompt);
  done.held_tokens = static_cast<int32_t>(tokens.held);
  // The decode worker may acknowledge the commit before the step ends.
  if (scheduler_.step_running()) {
    NoteStep(now, &done.request_id);
    part.started = std::min(part.started, std::max(step_started_, part.added));
  }
  done.steps = part.steps.Before(now);
  const absl::Time computed = std::min(part.computed, now);
  const absl::Time started = std::min(part.started, computed);
  done.queued = started - part.added;
  done.copied = std::min(part.copied, computed - started);
  done.compute = computed - started - done.copied;
  done.handoff = now - computed;
  ++totals_.done;
  // A commit that is on its way when the request is cancelled may still arrive.
  CountTokens(*prompt, tokens, part.failure.ok() ? nullptr : &PrefillTotals::wasted_tokens);
  done.bytes_pushed += part.ahead.bytes;
  if (part.failure.ok()) scheduler_.LeaseOrProtect(done.request_id, part.lease, part.lease_holder, now);
  yielding_ -= prompt->Yields();
  scheduler_.Remove(done.request_id);
  actions_.push_back(std::move(done));
}

// Counts the tokens of a request that ends. `unused`: the total that counts its computed tokens
// too; null if a decode worker or the cache got their KV.
void PrefillEngine::CountTokens(const PrefillPrompt& prompt, const PrefillTokens& tokens,
                                int64_t PrefillTotals::*unused) {
  if (prompt.is_low_priority()) {
    totals_.low_priority += tokens;
    return;
  }
  totals_.tokens += tokens;
  totals_.wasted_tokens += tokens.dropped;
  if (unused != nullptr) totals_.*unused += tokens.computed;
}

void PrefillEngine::Failed(RequestFailed failed) {
  const PrefillPrompt& prompt = scheduler_.prompt(failed.request_id);
  ++totals_.failed;
  CountTokens(prompt, TokensOf(prompt),
              failed.no_room_to_decode ? &PrefillTotals::refused_tokens : &PrefillTotals::wasted_tokens);
  yielding_ -= prompt.Yields();
  scheduler_.Remove(failed.request_id);
  actions_.push_back(std::move(failed));
}

absl::Duration PrefillEngine::LongestWait(absl::Time now) const {
  absl::Duration longest;
  for (const PrefillPrompt& prompt : scheduler_.prompts()) {
    const PrefillPrompt::EnginePart& part = prompt.engine;
    if (prompt.streaming || prompt.is_low_priority() || part.started != absl::InfiniteFuture()) continue;
    longest = std::max(longest, now - part.added);
  }
  return longest;
}

PrefillLoad PrefillEngine::load(absl::Time now) const {
  PrefillLoad load{.queue = scheduler_.load(),
                   .requests = std::ssize(scheduler_.prompts()),
                   .blocks = pool_.counts(),
                   .leased_blocks = scheduler_.leases().blocks(),
                   .longest_wait = LongestWait(now),
                   .staged = scheduler_.staging().counts(),
                   .totals = totals_};
  if (scheduler_.step_running()) {
    load.step_time = std::max(now - step_started_ - step_copied_, absl::ZeroDuration());
    load.step_forecast = step_cost_.Forecast(step_computes_);
    // A step without a forecast has a longer limit at the router, which covers its copies.
    if (load.step_forecast > absl::ZeroDuration()) load.step_forecast += step_copies_;
  }
  load.totals.evictions = tree_.evictions();
  load.totals.handoffs = sender_.totals();
  return load;
}

void PrefillEngine::CheckInvariants() const {
  scheduler_.CheckInvariants();
  sender_.CheckInvariants();
  const auto yielding =
      std::ranges::count_if(scheduler_.prompts(), [](const PrefillPrompt& prompt) { return prompt.Yields(); });
  BATON_CHECK(yielding == yielding_, "prompts that yield are miscounted");
  const bool ahead = std::ranges::any_of(ahead_, [](const auto& entry) { return !entry.second.sources.empty(); });
  if (scheduler_.prompts().empty() && !scheduler_.step_running() && !ahead) {
    BATON_CHECK(pool_.counts().referenced == scheduler_.leases().blocks(),
                "a block is referenced, but no request or lease has it");
  }
}

}  // namespace baton
