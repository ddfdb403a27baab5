#include "engine/decode/engine.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "kv/prefix_key.h"
#include "model/sampling_params.h"
#include "request/output_lengths.h"

namespace baton {
namespace {

DecodeEngineOptions Normalized(DecodeEngineOptions options) {
  options.model.positions = std::min(options.model.positions, options.blocks * kBlockTokens);
  options.handoff.positions = options.model.positions;
  return options;
}

// Returns the FNV-1a hash (Fowler, Noll, Vo) of the request's id and of the worker's incarnation.
// The incarnation makes the seed random, and the id makes it different for each request.
uint64_t DefaultSeed(Incarnation incarnation, const RequestId& request) {
  uint64_t hash = 0xcbf29ce484222325u ^ incarnation.value();
  for (const char c : request) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

void DecodeStep::Sample(int64_t i, const LogitsView& forward, SamplerScratch& scratch) {
  const std::span logits(forward.data + i * forward.vocab, static_cast<size_t>(forward.vocab));
  if (i >= std::ssize(rows)) return prompt_rows[static_cast<size_t>(i - std::ssize(rows))].Score(logits, scratch);
  Row& row = rows[static_cast<size_t>(i)];
  if (row.stream == nullptr) return;
  if (!forward.sampled.empty() && forward.sampled[static_cast<size_t>(i)].id != kNotSampled) {
    row.ended = row.stream->Advance(forward.sampled[static_cast<size_t>(i)]);
  } else {
    row.ended = row.stream->Advance(logits, scratch);
  }
}

DecodeEngine::DecodeEngine(DecodeEngineOptions options)
    : options_(Normalized(std::move(options))),
      pool_(options_.blocks),
      tree_(pool_),
      scheduler_({.max_batch = options_.max_batch, .positions = options_.model.positions}, pool_, tree_),
      scorer_(options_.scoring),
      receiver_(options_.handoff, pool_, tree_, [this](const ReserveRequest& request, int64_t blocks_now) {
        return scheduler_.Consider(request, blocks_now, Outstanding());
      }) {}

// Prompts that are computed here count as reservations: they have blocks, and become sequences.
HandoffReceiver::Outstanding DecodeEngine::Outstanding() const {
  HandoffReceiver::Outstanding outstanding = receiver_.outstanding();
  outstanding.committed += scorer_.size();
  outstanding.growth_blocks += scorer_.growth_blocks();
  return outstanding;
}

absl::Status DecodeEngine::CheckJob(const DecodeJob& job) const {
  const int32_t max_tokens = job.spec.sampling.max_tokens;
  RETURN_IF_ERROR(Validate(job.spec.sampling, options_.model.vocab));
  if (job.spec.tokens.empty()) return absl::InvalidArgumentError("the prompt is empty");
  if (std::ssize(job.spec.tokens) > options_.model.positions) {
    return absl::InvalidArgumentError(absl::StrCat("the prompt has ", job.spec.tokens.size(), " tokens, limit ",
                                                   options_.model.positions,
                                                   " (the smaller of the model's context length and the KV blocks)"));
  }
  const bool makes_none = job.spec.generated == 0 && job.spec.sampling.prompt_logprobs && max_tokens == 0;
  if (!makes_none &&
      (job.spec.generated < 0 || job.spec.generated >= std::min<int64_t>(std::ssize(job.spec.tokens), max_tokens))) {
    return absl::InvalidArgumentError(absl::StrCat("generated is ", job.spec.generated,
                                                   ", expected at least 0, less than max_tokens, which is ", max_tokens,
                                                   ", and less than the number of tokens, ", job.spec.tokens.size()));
  }
  for (size_t i = 0; i < job.spec.tokens.size(); ++i) {
    if (job.spec.tokens[i] < 0 || job.spec.tokens[i] >= options_.model.vocab) {
      return absl::InvalidArgumentError(absl::StrCat("tokens[", i, "] is ", job.spec.tokens[i],
                                                     ", expected a token id in [0, ", options_.model.vocab, ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status DecodeEngine::Start(DecodeJob job, absl::Time now) {
  if (by_id_.contains(job.request_id) || FindChecking(job.request_id) != checking_.end() ||
      FindScoring(job.request_id) != scoring_.end()) {
    // The KV of the running request is claimed, so this gives up only the second hand-off.
    receiver_.Cancel(job.request_id, now);
    return absl::FailedPreconditionError(
        absl::StrCat("request id ", job.request_id, " is in use by a running request"));
  }
  const absl::Status valid = CheckJob(job);
  if (valid.ok() && job.spec.sampling.prompt_logprobs) return StartScoring(std::move(job), now);
  absl::StatusOr<Claim> claim = valid.ok() ? receiver_.Start(job, now) : valid;
  if (!claim.ok()) {
    receiver_.Cancel(job.request_id, now);
    return claim.status();
  }
  const uint64_t seed = DefaultSeed(options_.handoff.incarnation, job.request_id);
  auto request = std::make_unique<Request>(std::move(job), options_.model, seed, now);
  if (auto* kv = std::get_if<ClaimedKv>(&*claim)) {
    Schedule(std::move(request), std::move(*kv));
  } else {
    checking_.emplace(std::get<ReservationId>(*claim), std::move(request));
  }
  return absl::OkStatus();
}

absl::Status DecodeEngine::StartScoring(DecodeJob job, absl::Time now) {
  if (!options_.shares_output) {
    return absl::UnimplementedError(
        "is not supported by this model, a decoder behind a frozen prefill module of other weights. It never computes "
        "prompts, so their tokens have no log probabilities");
  }
  const RequestSpec& spec = job.spec;
  const ReserveRequest sizes{.request_id = job.request_id,
                             .kv_tokens = static_cast<int32_t>(spec.tokens.size()) - 1,
                             .expected_new_tokens = static_cast<int32_t>(
                                 ExpectedLeft(spec.expected_tokens, spec.generated, spec.sampling.max_tokens))};
  ASSIGN_OR_RETURN(BlockTable blocks, receiver_.TakeBlocks(sizes, now));
  const uint64_t seed = DefaultSeed(options_.handoff.incarnation, job.request_id);
  auto request = std::make_unique<Request>(std::move(job), options_.model, seed, now);
  const RequestSpec& kept = request->stream.spec();
  if (sizes.kv_tokens == 0) {
    Scored(std::move(request), std::move(blocks), {{kept.tokens.begin(), kept.tokens.end()}, {}});
    return absl::OkStatus();
  }
  const int64_t longest =
      std::min<int64_t>(int64_t{sizes.kv_tokens} + sizes.expected_new_tokens, options_.model.positions);
  const int64_t growth = BlocksFor(longest) - static_cast<int64_t>(blocks.size());
  const SequenceId id = scorer_.Add(kept, scheduler_.QueueOrder(kept, now), std::move(blocks), growth);
  scoring_[id] = std::move(request);
  return absl::OkStatus();
}

// The KV of the prompt is complete. The request becomes a sequence, unless it generates nothing.
void DecodeEngine::Scored(std::unique_ptr<Request> request, BlockTable blocks, PromptLogprobs prompt) {
  DecodeStream& stream = request->stream;
  if (stream.spec().generated == 0) stream.SetPrompt(std::move(prompt));
  if (stream.spec().sampling.max_tokens == 0) return Emit(stream.End(FinishReason::kLength));
  const auto kv_tokens = static_cast<int32_t>(stream.spec().tokens.size()) - 1;
  Schedule(std::move(request), {.table = std::move(blocks), .keys = {}, .kv_tokens = kv_tokens});
}

void DecodeEngine::Schedule(std::unique_ptr<Request> request, ClaimedKv kv) {
  DecodeStream& stream = request->stream;
  if (stream.spec().generated > 0) stream.Resume(kv.kv_tokens);
  const SequenceId id = scheduler_.Add(std::move(kv), stream.spec(), request->added);
  by_id_[stream.request_id()] = id;
  requests_[id] = std::move(request);
}

void DecodeEngine::OnDigests(ReservationId check, const absl::StatusOr<std::vector<BlockDigest>>& digests,
                             absl::Time now) {
  std::optional<absl::StatusOr<ClaimedKv>> kv = receiver_.OnDigests(check, digests, now);
  auto taken = checking_.extract(check);
  if (!kv.has_value() || taken.empty()) return;  // cache-only, or cancelled since
  if (kv->ok()) {
    Schedule(std::move(taken.mapped()), *std::move(*kv));
  } else {
    Report(taken.mapped()->stream.request_id(), kv->status());
  }
}

DecodeEngine::Checking::iterator DecodeEngine::FindChecking(const RequestId& id) {
  return std::ranges::find_if(checking_, [&](const auto& entry) { return entry.second->stream.request_id() == id; });
}

DecodeEngine::Scoring::iterator DecodeEngine::FindScoring(const RequestId& id) {
  return std::ranges::find_if(scoring_, [&](const auto& entry) { return entry.second->stream.request_id() == id; });
}

// Returns false if the request is not computing its prompt.
bool DecodeEngine::CancelScoring(const RequestId& id) {
  const auto found = FindScoring(id);
  if (found == scoring_.end()) return false;
  found->second->cancelled = true;
  if (scorer_.Cancel(found->first)) {
    Emit(found->second->stream.End(FinishReason::kCancelled));
    scoring_.erase(found);
    receiver_.RoomMayHaveCome();
  }
  return true;
}

void DecodeEngine::Cancel(const RequestId& request, absl::Time now) {
  receiver_.Cancel(request, now);
  if (CancelScoring(request)) return;
  if (const auto checking = FindChecking(request); checking != checking_.end()) {
    Emit(checking->second->stream.End(FinishReason::kCancelled));
    checking_.erase(checking);
    return;
  }
  const auto found = by_id_.find(request);
  if (found == by_id_.end()) return;
  const SequenceId id = found->second;
  Request& running = At(id);
  if (running.steps_in_flight > 0 || running.copied) {
    running.cancelled = true;
    scheduler_.StopPlanning(id);
  } else {
    End(id, running);
  }
}

void DecodeEngine::End(const SequenceId& id, Request& request) {
  MakeUpdates();
  Emit(request.stream.End(FinishReason::kCancelled));
  Forget(id);
}

void DecodeEngine::FailAll(const absl::Status& status) {
  MakeUpdates();
  while (!requests_.empty()) Fail(requests_.begin()->first, status);
  for (const auto& [check, request] : std::exchange(checking_, {})) Report(request->stream.request_id(), status);
  for (const auto& [id, request] : std::exchange(scoring_, {})) {
    BATON_CHECK(scorer_.Cancel(id), "FailAll while a step runs");
    Report(request->stream.request_id(), status);
  }
}

DecodeEngine::Request& DecodeEngine::At(const SequenceId& id) {
  const auto it = requests_.find(id);
  BATON_CHECK(it != requests_.end(), "no such request");
  return *it->second;
}

DecodeStep* DecodeEngine::BeginStep(absl::Time now) {
  if (std::exchange(next_started_, false)) {
    std::swap(running_, next_);
    running_.step.batch.started = true;
    totals_.steps_ahead += next_ahead_;
  } else {
    const DecodePlan& plan = scheduler_.BeginStep();
    PromptScorer::Plan& prompts = scorer_.BeginStep(std::ssize(plan.batch));
    if (plan.empty() && prompts.slices.empty()) {
      scheduler_.FinishStep();
      return nullptr;
    }
    Fill(running_, plan);
    FillPrompts(running_.step, prompts);
    for (const SequenceId& id : prompts.prompts) Began(*scoring_.at(id), now);
  }
  for (Request* request : running_.requests) {
    if (request != nullptr) Began(*request, now);
  }
  return &running_.step;
}

// Reports that the request's first step begins, if this step is the first.
void DecodeEngine::Began(Request& request, absl::Time now) {
  if (std::exchange(request.began, true)) return;
  TokenUpdate start;
  start.request_id = request.stream.request_id();
  start.queued = now - request.added;
  Emit(std::move(start));
}

bool DecodeEngine::MayBeginNext() const {
  // A row without SampleSpec is sampled on the host. The next step cannot be enqueued before the
  // row's token is known.
  const auto is_chosen_there = [](const DecodeStep::Row& row) {
    return row.sample.has_value() && (row.stream == nullptr || row.stream->may_run_ahead());
  };
  // Chunks of prompts are planned when the step before them has ended.
  return scorer_.empty() && std::ranges::all_of(running_.step.rows, is_chosen_there) && scheduler_.MayBeginNext();
}

const Batch* DecodeEngine::BeginNext() {
  if (!MayBeginNext()) return nullptr;
  const DecodePlan* plan = scheduler_.BeginNext();
  if (plan == nullptr) return nullptr;
  Fill(next_, *plan);
  next_planned_ = true;
  return &next_.step.batch;
}

void DecodeEngine::Fill(PlannedStep& to, const DecodePlan& plan) {
  DecodeStep& step = to.step;
  step.Clear();
  to.requests.clear();
  step.out = plan.out;
  step.in = plan.in;
  for (const SwapCopy& copy : plan.out) At(copy.sequence).copied = true;
  for (const SwapCopy& copy : plan.in) At(copy.sequence).copied = true;
  step.rows.reserve(plan.batch.size());  // slices point into the rows
  // The requests of one tenant are in the order of the batch, so the next entry of the map is often
  // the right one and saves a search.
  auto next = requests_.begin();
  for (size_t i = 0; i < plan.batch.size(); ++i) {
    const SequenceId& id = plan.batch[i];
    if (next == requests_.end() || next->first != id) next = requests_.find(id);
    BATON_CHECK(next != requests_.end(), "a sequence without request");
    Request& request = *next++->second;
    const DecodeStream& stream = request.stream;
    const bool follows = request.steps_in_flight > 0;
    to.requests.push_back(&request);
    const DecodeStep::Row& row = step.rows.emplace_back(DecodeStep::Row{
        .sequence = id, .stream = &request.stream, .sample = stream.next_sample(request.steps_in_flight)});
    step.batch.slices.push_back({.tokens = stream.next_input(),
                                 .start = stream.next_position() + request.steps_in_flight,
                                 .blocks = plan.tables[i],
                                 .wants_logits = true,
                                 .sample = row.sample ? &*row.sample : nullptr,
                                 .follows = follows ? static_cast<int32_t>(request.row) : kFollowsNone});
    ++request.steps_in_flight;
    request.row = static_cast<int64_t>(i);
  }
}

void DecodeEngine::FillPrompts(DecodeStep& step, PromptScorer::Plan& plan) {
  step.batch.slices.insert(step.batch.slices.end(), plan.slices.begin(), plan.slices.end());
  step.prompt_rows = plan.rows;
}

void DecodeEngine::DropNext() {
  for (Request* request : next_.requests) --request->steps_in_flight;
  scheduler_.DropNext();
  for (size_t i = 0; i < next_.requests.size(); ++i) {
    Request& request = *next_.requests[i];
    if (request.cancelled && request.steps_in_flight == 0) End(next_.step.rows[i].sequence, request);
  }
}

void DecodeEngine::FinishStep(const DecodeStepResult& result) {
  BATON_CHECK(!result.next_started || (next_planned_ && result.status.ok()),
              "a step is enqueued, but BeginNext did not plan it");
  next_started_ = result.next_started;
  next_ahead_ = result.next_started && !result.device_waited;
  if (std::exchange(next_planned_, false) && !result.next_started) DropNext();
  scheduler_.FinishStep();
  if (std::exchange(ended_, false)) receiver_.RoomMayHaveCome();
  ++totals_.steps;
  MakeUpdates();  // TakeEvents was not called if the step had no row or failed
  DecodeStep& step = running_.step;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    if (running_.requests[i] != nullptr) FinishRow(step.rows[i], *running_.requests[i], result.status);
  }
  FinishPrompts(result);
  const auto settle = [&](const SwapCopy& copy) {
    const auto it = requests_.find(copy.sequence);
    if (it == requests_.end()) return;  // FinishRow has ended the request
    it->second->copied = false;
    if (it->second->cancelled) End(it->first, *it->second);
  };
  for (const SwapCopy& copy : step.in) settle(copy);
  for (const SwapCopy& copy : step.out) {
    if (*copy.host == nullptr && !copy.pieces.empty()) {
      Fail(copy.sequence, absl::ResourceExhaustedError("no host memory to swap the request out to"));
    } else {
      settle(copy);
    }
  }
}

void DecodeEngine::FinishPrompts(const DecodeStepResult& result) {
  const int64_t sequences = std::ssize(running_.step.rows);
  for (PromptScorer::Ended& ended : scorer_.FinishStep(result.status, sequences, result.took)) {
    std::unique_ptr<Request> request = std::move(scoring_.extract(ended.id).mapped());
    if (request->cancelled) {
      Emit(request->stream.End(FinishReason::kCancelled));
    } else if (!ended.status.ok()) {
      Report(request->stream.request_id(), std::move(ended.status));
    } else {
      Scored(std::move(request), std::move(ended.blocks), std::move(ended.prompt));
    }
    receiver_.RoomMayHaveCome();
  }
}

void DecodeEngine::FinishRow(DecodeStep::Row& row, Request& request, const absl::Status& forward) {
  --request.steps_in_flight;
  const absl::Status status = forward.ok() ? row.ended.status() : forward;
  if (!status.ok()) {
    Fail(row.sequence, status);
    return;
  }
  totals_.tokens_out += request.stream.made() > request.stream.spec().generated;
  // Blocks of a prompt that was computed here have no keys, so those of its output have none.
  const bool scored = request.stream.spec().sampling.prompt_logprobs.has_value();
  if (options_.shares_output && !scored) SetOutputBlockKey(row.sequence, request);
  if (*row.ended) {
    Emit(request.stream.TakeUpdate());
    Forget(row.sequence);
    return;
  }
  without_update_.push_back(&request);
  if (request.cancelled && !request.copied) End(row.sequence, request);
}

void DecodeEngine::MakeUpdates() {
  events_.updates.reserve(events_.updates.size() + without_update_.size());
  for (Request* request : without_update_) Emit(request->stream.TakeUpdate());
  without_update_.clear();
}

// The step wrote the KV of the token before the newest one. If this filled a block, sets the
// block's key.
void DecodeEngine::SetOutputBlockKey(const SequenceId& id, const Request& request) {
  const DecodeStream& stream = request.stream;
  const size_t written = stream.size() - 1;
  if (written % kBlockTokens != 0) return;
  std::array<TokenId, kBlockTokens> block;
  for (size_t i = 0; i < block.size(); ++i) block[i] = stream.token(written - block.size() + i);
  const std::vector<BlockKey>& keys = scheduler_.keys(id);
  const BlockKey parent =
      keys.empty() ? RootKey(options_.handoff.module_digest, stream.spec().cache_domain) : keys.back();
  scheduler_.SetBlockKey(id, ChildKey(parent, block));
}

void DecodeEngine::Emit(TokenUpdate update) {
  if (update.tokens.empty() && !update.finish && !update.queued) return;  // a replayed token
  totals_.finished += update.finish.has_value();
  events_.updates.push_back(std::move(update));
}

void DecodeEngine::Fail(const SequenceId& id, absl::Status status) {
  Report(At(id).stream.request_id(), std::move(status));
  Forget(id);
}

void DecodeEngine::Report(const RequestId& id, absl::Status status) {
  ++totals_.failed;
  events_.failures.push_back({id, std::move(status), absl::ZeroDuration()});
}

void DecodeEngine::Forget(const SequenceId& id) {
  Request& request = At(id);
  if (request.steps_in_flight > 0) {  // the next step discards the request's row
    BATON_CHECK(next_started_, "a request of the running step ends");
    const auto row = static_cast<size_t>(request.row);
    next_.requests[row] = nullptr;
    next_.step.rows[row].stream = nullptr;
  }
  scheduler_.Remove(id);
  receiver_.RoomMayHaveCome();
  ended_ = true;
  by_id_.erase(request.stream.request_id());
  requests_.erase(id);
}

DecodeEvents DecodeEngine::TakeEvents() {
  MakeUpdates();
  events_.room = receiver_.TakeRoom();
  return std::exchange(events_, {});
}

DecodeEngine::Load DecodeEngine::load(absl::Time now) const {
  const DecodeScheduler::Counts counts = scheduler_.counts();
  const HandoffReceiver::Outstanding outstanding = receiver_.outstanding();
  Load load = totals_;
  load.scoring = std::ssize(scoring_);
  load.running = counts.sequences + load.scoring;
  load.batch = counts.batch;
  load.swapped = counts.swapped;
  load.reserved = outstanding.reserved;
  load.committed = outstanding.committed;
  load.blocks = pool_.counts();
  const auto count_wait = [&](const auto& entry) {
    if (!entry.second->began) load.longest_wait = std::max(load.longest_wait, now - entry.second->added);
  };
  std::ranges::for_each(requests_, count_wait);
  std::ranges::for_each(scoring_, count_wait);
  load.scored_tokens = scorer_.tokens_computed();
  load.keeps_room = receiver_.keeps_room();
  load.preemptions = counts.preemptions;
  load.evictions = tree_.evictions();
  load.freed_by_process_end = receiver_.freed_by_process_end();
  load.expired_leases = receiver_.expired_leases();
  load.failed_checks = receiver_.failed_checks();
  load.refused_writes = receiver_.refused_writes();
  return load;
}

void DecodeEngine::CheckInvariants() const {
  tree_.CheckInvariants();
  scheduler_.CheckInvariants();
  receiver_.CheckInvariants();
  BATON_CHECK(std::ssize(scoring_) == scorer_.size(), "a prompt without request");
  BATON_CHECK(requests_.size() == by_id_.size(), "requests_ and by_id_ differ");
  BATON_CHECK(without_update_.size() <= requests_.size(), "an update is due for a request that does not exist");
  BATON_CHECK(static_cast<int64_t>(requests_.size()) == scheduler_.counts().sequences, "a sequence without request");
}

}  // namespace baton
