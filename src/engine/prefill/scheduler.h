// The scheduler of a prefill worker: it holds the prompts, and its parts plan the steps.
#pragma once

#include <cstdint>
#include <ranges>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "engine/prefill/admission.h"
#include "engine/prefill/kv_leases.h"
#include "engine/prefill/progress_log.h"
#include "engine/prefill/prompt.h"
#include "engine/prefill/prompt_queue.h"
#include "engine/prefill/session_protections.h"
#include "engine/prefill/staging_client.h"
#include "engine/prefill/step_planner.h"
#include "engine/prefill/streaming_share.h"
#include "kv/radix_tree.h"
#include "kv/staging/staging.h"
#include "model/batch.h"
#include "request/jobs.h"

namespace baton {

// Limits of the KV that is kept in addition to the prefix cache, in blocks.
struct KeptPrompts {
  int64_t leased = 0;  // upper bound on blocks of the pool that leases hold
  StagingOptions staging{};
};

// Plans prefill steps. A step computes chunks of many prompts in one batch. Prompts with a common
// prefix share its full blocks. While these blocks are in the pool, their tokens are not computed
// again (docs/design/overview.md, idea 4).
//
// A prompt streams until all of its tokens have arrived, and then it is closed. A block is
// promised while a step writes it, and ready after that (kv/radix_tree.h). A prompt takes up a
// block when it adds the block to its table.
//
// The caller adds prompts and repeats:
//
//   const Batch& batch = scheduler.PlanStep();
//   if (scheduler.step_running()) {
//     // Run staging().copies(), then the batch.
//     scheduler.FinishStep(ok);
//   }
//   // progress().Take() returns the positions that have KV now.
//
// The scheduler holds the table of prompts and takes the events. Its parts plan a step, of which
// they share one struct (StepPlan):
//
// - StepPlanner chooses the chunks of prompts, and promises blocks.
// - PromptQueue orders the prompts.
// - PrefillAdmission decides whether the pool has room for a prompt.
// - StreamingShare bounds the tokens of streaming prompts and low-priority jobs in a step.
// - StagingClient copies evicted KV back.
//
// These rules hold:
//
// - A step computes whole blocks of a prompt, except at the prompt's end.
// - A block that a step writes is promised in the tree until the step ends. Another prompt that
//   needs the block takes it up in the same step.
// - Removing a request takes nothing from other requests. Blocks that a running step writes become
//   ready even if their request is removed.
// - A closed prompt that finds no room keeps later closed prompts from being admitted in that step.
// - Streaming prompts and low-priority jobs yield: a closed prompt that lacks room takes their
//   blocks. They compute these tokens again later, or find them in the cache. Progress of a
//   streaming prompt is therefore reported only after it closes.
//
// docs/design/prefill_steps.md gives the reasons.
//
// Not thread-safe. The pool and the tree must outlive it. No other object may allocate their
// blocks.
class PrefillScheduler {
 public:
  // `step_tokens` is the upper bound on tokens computed per step, at least one block.
  PrefillScheduler(BlockPool& pool, RadixTree& tree, int64_t step_tokens, StreamingLimits streaming,
                   KeptPrompts kept = {});

  // Methods that take an id REQUIRE a prompt that was added and is not removed, unless they state
  // otherwise.

  // Adds a prompt. Returns INVALID_ARGUMENT, with needed and total blocks, if the prompt can never
  // fit. REQUIRES: the id is new, and the scheduler's fields of the prompt are unset.
  absl::Status Add(PrefillPrompt prompt);
  // Replaces the tokens of a streaming prompt by `tokens`, which begin with the old ones. The
  // prompt now gets KV for [0, kv_tokens). `keys` are those of the full blocks that the new tokens
  // complete. `last`: the prompt closes. Returns INVALID_ARGUMENT as Add does, and then changes
  // nothing. REQUIRES: the prompt streams and is not stopped.
  absl::Status Extend(const RequestId& id, TokenBuffer tokens, int64_t kv_tokens, std::span<const BlockKey> keys,
                      bool last);
  // Changes the prompt's position among prompts of equal priority.
  void SetQueueOrder(const RequestId& id, absl::Time queue_order);
  // Limits the KV that the prompt wants to positions [0, tokens), because the decode worker holds
  // the rest. May complete the prompt, and thus cause progress. REQUIRES: `tokens` is a multiple of
  // 16, or at least the number of positions that the prompt wants.
  void Limit(const RequestId& id, int64_t tokens);
  // Ends the planning of the prompt. Its blocks stay. The running step still writes its KV.
  void Stop(const RequestId& id);
  // Forgets the prompt and gives its blocks back. If the running step uses its blocks, the
  // scheduler keeps the prompt, outside prompts(), until that step is over.
  void Remove(const RequestId& id);

  // Plans the next step and returns its batch. The copies of the step, staging().copies(), run
  // before the batch. Either may be empty. Blocks that the cache has are taken up at once, and they
  // are progress even without a step. If step_running() is true then, FinishStep must follow, and
  // the batch and the copies are valid until that call. REQUIRES: no step is running.
  const Batch& PlanStep() { return planner_.PlanStep(); }
  bool step_running() const { return planner_.running(); }
  // The running step.
  const StepPlanner& step() const { return planner_; }
  // Ends the running step. `ok`: its KV is written. If the step failed, its promises are broken,
  // and requests for which it computed tokens are stopped. Returns the ids of these requests. The
  // other requests of a failed step are planned again. REQUIRES: a step is running.
  std::vector<RequestId> FinishStep(bool ok);
  // Leases the full blocks of the prompt's first `lease.tokens` tokens. If a step is running, the
  // lease begins when the step ends. If `lease.only_protects`, adds a session protection instead,
  // which begins at once.
  void LeaseOrProtect(const RequestId& id, const KvLease& lease, LeaseHolder holder, absl::Time now);
  KvLeases& leases() { return leases_; }
  const KvLeases& leases() const { return leases_; }
  SessionProtections& session_protections() { return session_protections_; }
  const SessionProtections& session_protections() const { return session_protections_; }
  KvStaging& staging() { return staging_.staging(); }
  const KvStaging& staging() const { return staging_.staging(); }
  StreamingShare& streaming() { return streaming_; }
  // Take() and TakeStreaming() of the log return the prompts that have gained KV.
  ProgressLog& progress() { return progress_; }

  // Returns true if the prompt has closed and has KV for all positions that it wants. Returns false
  // if the id is unknown.
  bool IsComplete(const RequestId& id) const;
  // All prompts that are not removed, as a view of `const PrefillPrompt&`.
  auto prompts() const {
    return prompts_ | std::views::values |
           std::views::transform([](const auto& prompt) -> const PrefillPrompt& { return *prompt; });
  }
  // Returns null if the id is unknown. The pointer is valid until the prompt's Remove.
  const PrefillPrompt* Find(const RequestId& id) const;
  const PrefillPrompt& prompt(const RequestId& id) const { return Get(id); }
  // Returns the caller's part of the prompt. Null, and valid, as Find.
  PrefillPrompt::EnginePart* FindEngine(const RequestId& id);

  struct Load {
    int64_t waiting = 0;  // queued requests that are not admitted
    int64_t running = 0;  // queued requests that are admitted
    // Tokens that queued requests want, excluding low-priority jobs. Planned tokens and tokens that
    // were cached or staged when they arrived do not count.
    int64_t queued_tokens = 0;
  };
  Load load() const;
  void CheckInvariants() const;

 private:
  const PrefillPrompt& Get(const RequestId& id) const;
  PrefillPrompt& Get(const RequestId& id);
  void Protect(PrefillPrompt& prompt);

  const RadixTree& tree_;
  KvLeases leases_;
  SessionProtections session_protections_;
  StagingClient staging_;
  StreamingShare streaming_;
  ProgressLog progress_;
  PrefillPrompts prompts_;  // owns the prompts that are not removed
  PromptQueue queue_;       // prompts that are neither stopped nor planned to the end
  PrefillAdmission admission_;
  uint64_t arrivals_ = 0;
  StepPlanner planner_;  // the last member, because its destructor uses the others
};

}  // namespace baton
