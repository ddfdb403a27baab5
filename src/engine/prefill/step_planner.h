// The planner of a prefill step: the chunks of prompts that the step computes, and the blocks that
// the step promises.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/ids.h"
#include "engine/prefill/admission.h"
#include "engine/prefill/progress_log.h"
#include "engine/prefill/prompt.h"
#include "engine/prefill/prompt_queue.h"
#include "engine/prefill/staging_client.h"
#include "engine/prefill/step_plan.h"
#include "engine/prefill/streaming_share.h"
#include "kv/radix_tree.h"
#include "model/batch.h"

namespace baton {

// The parts of the scheduler that plan a step. All must outlive the planner.
struct StepPlannerParts {
  RadixTree& tree;
  PromptQueue& queue;
  PrefillAdmission& admission;
  StagingClient& staging;
  const StreamingShare& streaming;
  ProgressLog& progress;
};

// Plans steps of queued prompts, and applies their end. A chunk is the part of a prompt that one
// step computes.
//
// - A chunk has whole blocks, except at the prompt's end.
// - A prompt first takes up its ready blocks, then the blocks that the step has promised already,
//   then its staged blocks. The step computes the rest, and promises each full block of it.
// - A promised block becomes ready when the step ends. If the step fails, its promises are broken
//   in the reverse order of planning.
// - The blocks and the tokens of a running step stay until the step ends.
//
// docs/design/prefill_steps.md gives the reasons. PrefillScheduler describes how a caller runs
// steps. Not thread-safe.
class StepPlanner {
 public:
  // `step_tokens` is the upper bound on tokens computed per step, at least one block.
  StepPlanner(StepPlannerParts parts, int64_t step_tokens);
  ~StepPlanner();
  StepPlanner(const StepPlanner&) = delete;
  StepPlanner& operator=(const StepPlanner&) = delete;

  // Plans the next step and returns its batch, which is valid until FinishStep. FinishStep must
  // follow if running() is true then. REQUIRES: no step is running.
  const Batch& PlanStep();
  bool running() const { return !prompts_.empty(); }
  // Ends the running step. `ok`: its KV is written. If the step failed, the prompts for which it
  // computed tokens are stopped. Returns their ids. The other prompts of a failed step are queued
  // again. REQUIRES: a step is running.
  std::vector<RequestId> FinishStep(bool ok);

  // Returns the chunks of the running step that complete their prompts.
  std::vector<PrefillProgress> LastSlices() const;
  // Calls `visit` for each prompt that gains KV in the running step, with the number of tokens that
  // the step computes for it. The number is 0 if the prompt only gains tokens that other prompts
  // compute, or that are copied back.
  void ForEachInStep(absl::FunctionRef<void(const RequestId& id, int64_t tokens)> visit) const;
  // Returns how many tokens the running step computes for prompts that yielded when it was planned.
  int64_t yielding_tokens() const { return yielding_tokens_; }

  // Keeps a removed prompt until the step ends, if the running step uses its blocks. REQUIRES: the
  // prompt is stopped.
  void Retain(std::unique_ptr<PrefillPrompt> removed);
  // Keeps replaced tokens of a prompt until the step ends, if a step is running.
  void Retain(TokenBuffer outgrown);

  void CheckInvariants() const;

 private:
  void PlanPrompts(StepPlan& step);
  void GiveBack(PrefillPrompt& prompt);
  bool RecomputesEvicted(const PrefillPrompt& prompt, const StepPlan& step) const;
  int64_t Advance(PrefillPrompt& prompt, const StepPlan& step);
  void TakeUp(PrefillPrompt& prompt, RadixTree::State state);
  void PlanSlice(PrefillPrompt& prompt, int64_t budget);
  std::vector<RequestId> RollBackAll();
  void KeepPromises(PrefillPrompt& prompt);
  void RollBack(PrefillPrompt& prompt);
  void ForgetStep(bool ok);

  const StepPlannerParts parts_;
  const int64_t step_tokens_;
  int64_t yielding_tokens_ = 0;
  Batch batch_;
  // The prompts of the running step, with planned > done, in the order of planning. A prompt that
  // promises a block comes before the prompts that share it.
  std::vector<PrefillPrompt*> prompts_;
  // Removed prompts whose blocks the running step uses, and replaced tokens that it reads.
  std::vector<std::unique_ptr<PrefillPrompt>> removed_;
  std::vector<TokenBuffer> outgrown_;
};

}  // namespace baton
