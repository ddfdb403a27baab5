#include "engine/prefill/scheduler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "kv/block_layout.h"

namespace baton {

PrefillScheduler::PrefillScheduler(BlockPool& pool, RadixTree& tree, int64_t step_tokens, OpenPromptLimits open,
                                   KeptPrompts kept)
    : pool_(pool),
      tree_(tree),
      step_tokens_(step_tokens),
      leases_(pool, tree, kept.leased),
      session_leases_(tree),
      staging_(tree, kept.staging),
      streaming_(open),
      admission_(pool, tree, prompts_, queue_, leases_) {
  BATON_CHECK(step_tokens_ >= kBlockTokens, "a step computes at least one block");
}

PrefillScheduler::~PrefillScheduler() {
  if (step_running()) FinishStep(false);
}

const PrefillPrompt* PrefillScheduler::Find(const RequestId& id) const {
  const auto found = prompts_.find(id);
  return found == prompts_.end() ? nullptr : found->second.get();
}

PrefillPrompt::EnginePart* PrefillScheduler::FindEngine(const RequestId& id) {
  const auto found = prompts_.find(id);
  return found == prompts_.end() ? nullptr : &found->second->engine;
}

const PrefillPrompt& PrefillScheduler::Get(const RequestId& id) const {
  const PrefillPrompt* const prompt = Find(id);
  BATON_CHECK(prompt != nullptr, "no such request");
  return *prompt;
}

PrefillPrompt& PrefillScheduler::Get(const RequestId& id) {
  const auto found = prompts_.find(id);
  BATON_CHECK(found != prompts_.end(), "no such request");
  return *found->second;
}

absl::Status PrefillScheduler::Add(PrefillPrompt prompt) {
  BATON_CHECK(!prompts_.contains(prompt.id), "added twice");
  const int64_t tokens = prompt.kv_tokens;
  BATON_CHECK(tokens <= std::ssize(prompt.spec.tokens), "KV for tokens that are not there");
  BATON_CHECK(static_cast<int64_t>(prompt.keys.size()) == tokens / kBlockTokens, "one key for each full block");
  BATON_CHECK(!prompt.open || tokens % kBlockTokens == 0, "an open prompt has whole blocks");
  RETURN_IF_ERROR(admission_.CheckFits(tokens));
  auto request = std::make_unique<PrefillPrompt>(std::move(prompt));
  request->arrival = ++arrivals_;
  request->wanted = tokens;
  request->progress_reported = !request->open;
  request->ready_at_add = staging_.Expect(*request, 0);
  if (tokens > 0) queue_.Insert(request.get());
  Protect(*request);
  prompts_[request->id] = std::move(request);
  return absl::OkStatus();
}

absl::Status PrefillScheduler::Extend(const RequestId& id, TokenBuffer tokens, int64_t kv_tokens,
                                      std::span<const BlockKey> keys, bool last) {
  PrefillPrompt& request = Get(id);
  BATON_CHECK(request.open && !request.stopped, "extended after its end");
  RETURN_IF_ERROR(admission_.CheckFits(kv_tokens));
  queue_.Erase(&request);
  if (step_running()) outgrown_.push_back(std::move(request.spec.tokens));
  request.spec.tokens = std::move(tokens);
  request.kv_tokens = kv_tokens;
  request.keys.insert(request.keys.end(), keys.begin(), keys.end());
  BATON_CHECK(std::ssize(request.keys) == kv_tokens / kBlockTokens, "one key for each full block");
  BATON_CHECK(last || kv_tokens % kBlockTokens == 0, "an open prompt has whole blocks");
  if (request.ready_at_add == request.wanted) request.ready_at_add = staging_.Expect(request, request.wanted);
  request.wanted = kv_tokens;
  request.looked_again = false;
  request.open = !last;
  request.admitted = false;  // it needs more room
  request.extended = true;
  if (request.planned < request.wanted) queue_.Insert(&request);
  if (last) Protect(request);
  if (last && request.done >= request.wanted) progress_.ReportAll(request);
  return absl::OkStatus();
}

void PrefillScheduler::SetQueueOrder(const RequestId& id, absl::Time queue_order) {
  PrefillPrompt& request = Get(id);
  const bool waits = queue_.Erase(&request);
  request.queue_order = queue_order;
  if (waits) queue_.Insert(&request);
  if (request.protection) Protect(request);
}

void PrefillScheduler::Limit(const RequestId& id, int64_t tokens) {
  PrefillPrompt& request = Get(id);
  if (tokens >= request.wanted) return;
  BATON_CHECK(tokens >= 0 && tokens % kBlockTokens == 0, "limited to whole blocks");
  request.wanted = tokens;
  if (request.planned >= request.wanted) {
    queue_.Erase(&request);
    staging_.Unprotect(request);
  }
  if (request.done >= request.wanted) progress_.ReportAll(request);
}

void PrefillScheduler::Stop(const RequestId& id) {
  PrefillPrompt& request = Get(id);
  request.stopped = true;
  staging_.Release(request);
  staging_.Unprotect(request);
  queue_.Erase(&request);
}

void PrefillScheduler::Remove(const RequestId& id) {
  Stop(id);
  auto node = prompts_.extract(id);
  if (node.mapped()->planned > node.mapped()->done) removed_.push_back(std::move(node.mapped()));
}

// Takes the prompt's blocks and queues it again. Its full blocks stay in the cache until they are
// evicted. The progress of a closed low-priority job is reported a second time. That has no effect,
// because the job has no hand-off.
void PrefillScheduler::GiveBack(PrefillPrompt& request) {
  request.progress_reported = false;
  request.table.Truncate(0);
  request.planned = request.done = request.own_begin = request.slice_begin = 0;
  request.counters = {};
  request.ready_at_add = staging_.Expect(request, request.wanted);
  request.looked_again = false;
  request.admitted = false;
  if (!request.stopped && request.wanted > 0) queue_.Insert(&request);
  Protect(request);
}

// Protects the cached blocks of a queued prompt. Ends the protection of any other prompt.
void PrefillScheduler::Protect(PrefillPrompt& prompt) {
  if (queue_.contains(&prompt)) {
    staging_.Protect(prompt);
  } else {
    staging_.Unprotect(prompt);
  }
}

const Batch& PrefillScheduler::PlanStep() {
  BATON_CHECK(!step_running(), "the last step has not been finished");
  if (queue_.empty()) return batch_;
  StepPlan step(step_tokens_);
  queue_.BeginStep(step);
  streaming_.BeginStep(step);
  admission_.BeginStep(step);
  const int64_t share = step.yielding_tokens;
  PlanPrompts(step);
  if (!step_running()) {
    // The worker would idle. The queue has only streaming prompts with few new tokens, and prompts
    // that wait for blocks or for reads.
    streaming_.BeginIdleStep(step, queue_);
    PlanPrompts(step);
  }
  yielding_tokens_ = share - step.yielding_tokens;
  queue_.Charge(step);
  return batch_;
}

void PrefillScheduler::PlanPrompts(StepPlan& step) {
  bool admitting = true;
  for (PrefillPrompt* prompt : step.order) {
    if (step.tokens < kBlockTokens) break;
    if (!streaming_.TakesPart(*prompt, step) || !queue_.contains(prompt)) continue;
    if (!prompt->admitted) {
      if ((!admitting && !prompt->open) || staging_.WaitsForDisk(*prompt)) continue;
      if (!admission_.Admit(*prompt, step, [this](PrefillPrompt& victim) { GiveBack(victim); })) {
        // No closed prompt overtakes a closed prompt that waits for blocks.
        admitting = admitting && prompt->open;
        continue;
      }
      progress_.ReportAll(*prompt);
    }
    // Blocks that another prompt promised in this step stay reserved until the step succeeds.
    const int64_t available = tree_.Available();
    step.Take(*prompt, Advance(*prompt, step));
    step.reserved -= available - tree_.Available();
  }
}

// Returns the number of tokens that the step computes for the request.
int64_t PrefillScheduler::Advance(PrefillPrompt& request, const StepPlan& step) {
  const int64_t begin = request.done, budget = step.TokensFor(request);
  request.plan = step.number;
  TakeUp(request, RadixTree::State::kReady);
  staging_.Unprotect(request);
  progress_.SetDone(request, request.planned);
  request.counters_before = request.counters;
  TakeUp(request, RadixTree::State::kPromised);
  const bool all_back = staging_.BringBack(request, step);
  request.slice_begin = request.planned;
  if (all_back) PlanSlice(request, budget);
  if (request.planned > request.done) step_.push_back(&request);
  if (request.planned >= request.wanted) queue_.Erase(&request);
  BATON_CHECK(request.planned > begin || budget < kBlockTokens || !all_back, "an admitted request made no progress");
  return request.planned - request.slice_begin;
}

void PrefillScheduler::TakeUp(PrefillPrompt& request, RadixTree::State state) {
  const std::vector<BlockKey>& keys = request.keys;
  while (request.planned < request.wanted && request.table.size() < keys.size()) {
    const BlockKey& key = keys[request.table.size()];
    if (tree_.Find(key) != state) break;
    const bool cached = state == RadixTree::State::kReady && request.planned < request.ready_at_add;
    (cached ? request.counters.cached : request.counters.shared) += kBlockTokens;
    request.table.Append(request.IsInBackground() ? tree_.Share(key) : tree_.Acquire(key));
    request.planned += kBlockTokens;
  }
}

void PrefillScheduler::PlanSlice(PrefillPrompt& request, int64_t budget) {
  request.slice_begin = request.planned;
  const int64_t left = request.wanted - request.planned;
  const int64_t take = left <= budget ? left : budget - budget % kBlockTokens;
  if (take <= 0) return;
  const auto begin = static_cast<size_t>(request.planned);
  request.planned += take;
  const std::span<const BlockKey> keys(request.keys);
  while (static_cast<int64_t>(request.table.size()) < BlocksFor(request.planned)) {
    BlockRef block = staging_.Allocate();
    const size_t index = request.table.size();
    if (index < keys.size()) tree_.Promise(keys.first(index + 1), block);
    request.table.Append(std::move(block));
  }
  request.counters.computed += static_cast<int32_t>(take);
  batch_.slices.push_back({
      .tokens = std::span<const TokenId>(request.spec.tokens).subspan(begin, static_cast<size_t>(take)),
      .start = static_cast<int32_t>(begin),
      .blocks = request.table.ids(),
  });
}

std::vector<PrefillProgress> PrefillScheduler::LastSlices() const {
  std::vector<PrefillProgress> slices;
  for (const PrefillPrompt* request : step_) {
    const bool has_slice = request->slice_begin < request->planned;
    if (request->stopped || !request->progress_reported || !has_slice || request->planned < request->wanted) continue;
    slices.push_back({request->id, request->slice_begin, request->planned});
  }
  return slices;
}

void PrefillScheduler::ForEachInStep(absl::FunctionRef<void(const RequestId& id, int64_t tokens)> visit) const {
  for (const PrefillPrompt* request : step_) visit(request->id, request->planned - request->slice_begin);
}

std::vector<RequestId> PrefillScheduler::FinishStep(bool ok) {
  BATON_CHECK(step_running(), "no step is running");
  std::vector<RequestId> failed;
  if (ok) {
    for (PrefillPrompt* request : step_) KeepPromises(*request);
  } else {
    for (auto it = step_.rbegin(); it != step_.rend(); ++it) {
      PrefillPrompt& request = **it;
      const bool has_slice = request.slice_begin < request.planned;
      RollBack(request);
      if (request.stopped) continue;
      if (has_slice) {
        request.stopped = true;
        failed.push_back(request.id);
      } else if (request.planned < request.wanted) {
        queue_.Insert(&request);
      }
    }
  }
  ForgetStep(ok);
  return failed;
}

void PrefillScheduler::ForgetStep(bool ok) {
  yielding_tokens_ = 0;
  staging_.staging().EndStep(ok);
  for (PrefillPrompt* request : step_) {
    if (!request->stopped) continue;
    queue_.Erase(request);
    staging_.Unprotect(*request);
  }
  step_.clear();
  batch_.slices.clear();
  removed_.clear();
  outgrown_.clear();
  leases_.Grant(admission_.Unpromised());
}

void PrefillScheduler::KeepPromises(PrefillPrompt& request) {
  const std::vector<BlockKey>& keys = request.keys;
  const auto end = std::min(keys.size(), request.table.size());
  for (auto i = static_cast<size_t>(request.own_begin / kBlockTokens); i < end; ++i) tree_.MakeReady(keys[i]);
  request.own_begin = request.slice_begin = request.planned;
  if (end >= request.staged_end) staging_.Release(request);
  progress_.SetDone(request, request.planned);
}

// Restores the request's state from before the step. REQUIRES: requests that share its promises
// were rolled back before.
void PrefillScheduler::RollBack(PrefillPrompt& request) {
  const std::vector<BlockKey>& keys = request.keys;
  if (request.own_begin < request.planned) {
    const auto first = static_cast<size_t>(request.own_begin / kBlockTokens);
    while (request.table.size() > first) {
      const BlockRef block = request.table.PopBack();
      if (request.table.size() < keys.size()) tree_.Break(keys[request.table.size()]);
    }
  }
  request.table.Truncate(static_cast<size_t>(BlocksFor(request.done)));
  request.planned = request.own_begin = request.slice_begin = request.done;
  request.counters = request.counters_before;
}

void PrefillScheduler::Lease(const RequestId& id, const KvLease& lease, LeaseHolder holder, absl::Time now) {
  const std::span<const BlockKey> keys(Get(id).keys);
  const auto path = keys.first(std::min(keys.size(), static_cast<size_t>(lease.tokens / kBlockTokens)));
  if (lease.yields) return session_leases_.Add(path, now + lease.duration);
  leases_.Ask(holder, path, now + lease.duration);
  if (!step_running()) leases_.Grant(admission_.Unpromised());
}

bool PrefillScheduler::IsComplete(const RequestId& id) const {
  const PrefillPrompt* const prompt = Find(id);
  return prompt != nullptr && prompt->done >= prompt->wanted && !prompt->open;
}

PrefillScheduler::Load PrefillScheduler::load() const {
  Load load;
  for (const PrefillPrompt* request : queue_) {
    ++(request->admitted ? load.running : load.waiting);
    if (request->IsInBackground()) continue;  // a new prompt does not wait for low-priority jobs
    load.queued_tokens += std::max<int64_t>(0, request->wanted - std::max(request->planned, request->ready_at_add));
  }
  return load;
}

void PrefillScheduler::CheckInvariants() const {
  tree_.CheckInvariants();
  leases_.CheckInvariants();
  if (!step_running()) staging().CheckInvariants();
  for (const auto& [id, request] : prompts_) {
    BATON_CHECK(id == request->id, "a request under another's id");
    BATON_CHECK(request->done <= request->planned, "more done than planned");
    BATON_CHECK(step_running() || request->done == request->planned, "something is planned and no step is running");
    BATON_CHECK(static_cast<int64_t>(request->table.size()) == BlocksFor(request->planned), "a table of wrong size");
    BATON_CHECK(request->admitted || request->table.size() == 0 || request->extended,
                "a request took blocks before it was admitted");
    const bool active = !request->stopped && request->planned < request->wanted;
    BATON_CHECK(queue_.contains(request.get()) == active, "an inactive request is planned, or an active one is not");
    BATON_CHECK(!request->protection || active, "cached blocks are protected for a request that has what it wants");
    const PrefillCounters& counters = request->counters;
    const int64_t staged = counters.from_host + counters.from_disk;
    BATON_CHECK(counters.cached + counters.shared + staged + counters.computed == request->planned,
                "tokens miscounted");
  }
  BATON_CHECK(step_running() || removed_.empty(), "a removed request stayed");
  BATON_CHECK(admission_.Unpromised() >= 0, "an admitted request may find no block");
}

}  // namespace baton
