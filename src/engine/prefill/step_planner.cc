#include "engine/prefill/step_planner.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "kv/block_layout.h"

namespace baton {

StepPlanner::StepPlanner(StepPlannerParts parts, int64_t step_tokens) : parts_(parts), step_tokens_(step_tokens) {
  BATON_CHECK(step_tokens_ >= kBlockTokens, "a step computes at least one block");
}

StepPlanner::~StepPlanner() {
  if (running()) FinishStep(false);
}

const Batch& StepPlanner::PlanStep() {
  BATON_CHECK(!running(), "the last step has not been finished");
  if (parts_.queue.empty()) return batch_;
  StepPlan step(step_tokens_);
  parts_.queue.BeginStep(step);
  parts_.streaming.BeginStep(step);
  parts_.admission.BeginStep(step);
  const int64_t share = step.yielding_tokens;
  PlanPrompts(step);
  if (!running()) {
    // The worker would idle. The queue has only streaming prompts with few new tokens, and prompts
    // that wait for blocks or for reads.
    parts_.streaming.BeginIdleStep(step, parts_.queue);
    PlanPrompts(step);
  }
  yielding_tokens_ = share - step.yielding_tokens;
  parts_.queue.Charge(step);
  return batch_;
}

void StepPlanner::PlanPrompts(StepPlan& step) {
  bool admitting = true;
  for (PrefillPrompt* prompt : step.order) {
    if (step.tokens < kBlockTokens) break;
    if (!parts_.streaming.TakesPart(*prompt, step) || !parts_.queue.contains(prompt)) continue;
    if (!prompt->admitted) {
      if ((!admitting && !prompt->streaming) || parts_.staging.WaitsForDisk(*prompt)) continue;
      if (RecomputesEvicted(*prompt, step)) continue;
      if (!parts_.admission.Admit(*prompt, step, [this](PrefillPrompt& victim) { GiveBack(victim); })) {
        // No closed prompt overtakes a closed prompt that waits for blocks.
        admitting = admitting && prompt->streaming;
        continue;
      }
      parts_.progress.ReportAll(*prompt);
    }
    // Blocks that another prompt promised in this step stay reserved until the step succeeds.
    const int64_t available = parts_.tree.Available();
    step.Take(*prompt, Advance(*prompt, step));
    step.reserved -= available - parts_.tree.Available();
  }
}

// Returns true for a low-priority job that would compute evicted blocks again, and would evict
// protected blocks for that. Such a job gains nothing: other sessions then lose KV that they need
// soon. It waits until there is room to spare, or until the router ends it.
bool StepPlanner::RecomputesEvicted(const PrefillPrompt& prompt, const StepPlan& step) const {
  if (!prompt.is_low_priority()) return false;
  const auto ready = static_cast<size_t>(parts_.tree.ReadyPrefix(prompt.keys));
  const bool lacks = ready < std::min(prompt.keys.size(), static_cast<size_t>(prompt.wanted / kBlockTokens));
  return lacks && parts_.staging.WasEvicted(prompt.keys[ready]) && !parts_.admission.HasSpare(prompt, step);
}

// Takes the prompt's blocks and queues it again. Its full blocks stay in the cache until they are
// evicted. Progress of a closed low-priority job that was taken before is reported a second time.
// That has no effect, because the job has no hand-off.
void StepPlanner::GiveBack(PrefillPrompt& prompt) {
  parts_.progress.Withdraw(prompt);
  prompt.table.Truncate(0);
  prompt.planned = prompt.done = prompt.own_begin = prompt.slice_begin = 0;
  prompt.counters = {.dropped = prompt.counters.dropped + prompt.counters.computed};
  prompt.ready_at_add = parts_.staging.Expect(prompt, prompt.wanted);
  prompt.looked_again = false;
  prompt.admitted = false;
  if (!prompt.stopped && prompt.wanted > 0) {
    parts_.queue.Insert(&prompt);
    parts_.staging.Protect(prompt);
  }
}

// Returns the number of tokens that the step computes for the prompt.
int64_t StepPlanner::Advance(PrefillPrompt& prompt, const StepPlan& step) {
  const int64_t begin = prompt.done, budget = step.TokensFor(prompt);
  prompt.plan = step.number;
  TakeUp(prompt, RadixTree::State::kReady);
  parts_.staging.Unprotect(prompt);
  parts_.progress.SetDone(prompt, prompt.planned);
  prompt.counters_before = prompt.counters;
  TakeUp(prompt, RadixTree::State::kPromised);
  const bool all_back = parts_.staging.BringBack(prompt, step);
  prompt.slice_begin = prompt.planned;
  if (all_back) PlanSlice(prompt, budget);
  if (prompt.planned > prompt.done) prompts_.push_back(&prompt);
  if (prompt.planned >= prompt.wanted) parts_.queue.Erase(&prompt);
  BATON_CHECK(prompt.planned > begin || budget < kBlockTokens || !all_back, "an admitted request made no progress");
  return prompt.planned - prompt.slice_begin;
}

// Takes up the blocks in this state that follow the prompt's table.
void StepPlanner::TakeUp(PrefillPrompt& prompt, RadixTree::State state) {
  const std::vector<BlockKey>& keys = prompt.keys;
  while (prompt.planned < prompt.wanted && prompt.table.size() < keys.size()) {
    const BlockKey& key = keys[prompt.table.size()];
    if (parts_.tree.Find(key) != state) break;
    const bool cached = state == RadixTree::State::kReady && prompt.planned < prompt.ready_at_add;
    (cached ? prompt.counters.cached : prompt.counters.shared) += kBlockTokens;
    prompt.table.Append(prompt.is_low_priority() ? parts_.tree.Share(key) : parts_.tree.Acquire(key));
    prompt.planned += kBlockTokens;
  }
}

// Adds the prompt's next chunk of at most `budget` tokens to the batch.
void StepPlanner::PlanSlice(PrefillPrompt& prompt, int64_t budget) {
  prompt.slice_begin = prompt.planned;
  const int64_t left = prompt.wanted - prompt.planned;
  const int64_t take = left <= budget ? left : budget - budget % kBlockTokens;
  if (take <= 0) return;
  const auto begin = static_cast<size_t>(prompt.planned);
  prompt.planned += take;
  const std::span<const BlockKey> keys(prompt.keys);
  while (static_cast<int64_t>(prompt.table.size()) < BlocksFor(prompt.planned)) {
    BlockRef block = parts_.staging.Allocate();
    const size_t index = prompt.table.size();
    if (index < keys.size()) parts_.tree.Promise(keys.first(index + 1), block);
    prompt.table.Append(std::move(block));
  }
  prompt.counters.computed += static_cast<int32_t>(take);
  batch_.slices.push_back({
      .tokens = std::span<const TokenId>(prompt.spec.tokens).subspan(begin, static_cast<size_t>(take)),
      .start = static_cast<int32_t>(begin),
      .blocks = prompt.table.ids(),
  });
}

std::vector<PrefillProgress> StepPlanner::LastSlices() const {
  std::vector<PrefillProgress> slices;
  for (const PrefillPrompt* prompt : prompts_) {
    const bool has_slice = prompt->slice_begin < prompt->planned;
    if (prompt->stopped || !prompt->progress_reported || !has_slice || prompt->planned < prompt->wanted) continue;
    slices.push_back({prompt->id, prompt->slice_begin, prompt->planned});
  }
  return slices;
}

void StepPlanner::ForEachInStep(absl::FunctionRef<void(const RequestId& id, int64_t tokens)> visit) const {
  for (const PrefillPrompt* prompt : prompts_) visit(prompt->id, prompt->planned - prompt->slice_begin);
}

std::vector<RequestId> StepPlanner::FinishStep(bool ok) {
  BATON_CHECK(running(), "no step is running");
  std::vector<RequestId> failed;
  if (ok) {
    for (PrefillPrompt* prompt : prompts_) KeepPromises(*prompt);
  } else {
    failed = RollBackAll();
  }
  ForgetStep(ok);
  return failed;
}

// Makes the prompt's promised blocks ready.
void StepPlanner::KeepPromises(PrefillPrompt& prompt) {
  const std::vector<BlockKey>& keys = prompt.keys;
  const auto end = std::min(keys.size(), prompt.table.size());
  for (auto i = static_cast<size_t>(prompt.own_begin / kBlockTokens); i < end; ++i) parts_.tree.MakeReady(keys[i]);
  prompt.own_begin = prompt.slice_begin = prompt.planned;
  if (end >= prompt.staged_end) parts_.staging.Release(prompt);
  parts_.progress.SetDone(prompt, prompt.planned);
}

// Returns the ids of the prompts for which the failed step computed tokens. Stops these prompts,
// and queues the others again.
std::vector<RequestId> StepPlanner::RollBackAll() {
  std::vector<RequestId> failed;
  for (auto it = prompts_.rbegin(); it != prompts_.rend(); ++it) {
    PrefillPrompt& prompt = **it;
    const bool has_slice = prompt.slice_begin < prompt.planned;
    RollBack(prompt);
    if (prompt.stopped) continue;
    if (has_slice) {
      prompt.stopped = true;
      failed.push_back(prompt.id);
    } else if (prompt.planned < prompt.wanted) {
      parts_.queue.Insert(&prompt);
    }
  }
  return failed;
}

// Restores the prompt's state from before the step. REQUIRES: prompts that share its promises were
// rolled back before.
void StepPlanner::RollBack(PrefillPrompt& prompt) {
  const std::vector<BlockKey>& keys = prompt.keys;
  if (prompt.own_begin < prompt.planned) {
    const auto first = static_cast<size_t>(prompt.own_begin / kBlockTokens);
    while (prompt.table.size() > first) {
      BlockRef block = prompt.table.PopBack();
      if (prompt.table.size() < keys.size()) parts_.tree.Break(keys[prompt.table.size()]);
      // A layer of a computed block may be in flight to the decode worker.
      if (prompt.slice_begin < prompt.planned) prompt.failed_blocks.push_back(std::move(block));
    }
  }
  prompt.table.Truncate(static_cast<size_t>(BlocksFor(prompt.done)));
  prompt.planned = prompt.own_begin = prompt.slice_begin = prompt.done;
  prompt.counters = prompt.counters_before;
}

void StepPlanner::ForgetStep(bool ok) {
  yielding_tokens_ = 0;
  parts_.staging.staging().EndStep(ok);
  for (PrefillPrompt* prompt : prompts_) {
    if (!prompt->stopped) continue;
    parts_.queue.Erase(prompt);
    parts_.staging.Unprotect(*prompt);
  }
  prompts_.clear();
  batch_.slices.clear();
  removed_.clear();
  outgrown_.clear();
}

void StepPlanner::Retain(std::unique_ptr<PrefillPrompt> removed) {
  if (removed->planned > removed->done) removed_.push_back(std::move(removed));
}

void StepPlanner::Retain(TokenBuffer outgrown) {
  if (running()) outgrown_.push_back(std::move(outgrown));
}

void StepPlanner::CheckInvariants() const { BATON_CHECK(running() || removed_.empty(), "a removed request stayed"); }

}  // namespace baton
