// The order in which a step takes up prompts: by tenant, priority, queue order and arrival.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "engine/prefill/fair_queue.h"
#include "engine/prefill/prompt.h"
#include "engine/prefill/step_plan.h"

namespace baton {

// The queue of prompts that still need KV. FairQueue orders the tenants of a step. The prompts of
// one tenant have this order:
//
// 1. The prompt of higher priority comes first.
// 2. Closed prompts come before streaming prompts.
// 3. The prompt of earlier queue order comes first.
// 4. The prompt that arrived first comes first.
//
// Low-priority jobs come after the prompts of all tenants. In every eighth step the oldest closed
// prompt of each tenant comes before the tenant's other prompts, and it stays there until it has
// taken part in a step. A tenant without closed prompts uses its oldest streaming prompt. A
// tenant's prompts of lower priority therefore do not wait forever.
//
// Not thread-safe. REQUIRES: a prompt outlives its time in the queue, and the fields that order it
// do not change during that time.
class PromptQueue {
 public:
  void Insert(PrefillPrompt* prompt) { prompts_.insert(prompt); }
  bool Erase(PrefillPrompt* prompt) { return prompts_.erase(prompt) > 0; }
  bool contains(const PrefillPrompt* prompt) const { return prompts_.contains(const_cast<PrefillPrompt*>(prompt)); }
  bool empty() const { return prompts_.empty(); }

  // Sets the step's number, and the order of all prompts.
  void BeginStep(StepPlan& step);
  // Charges each tenant for what the step spends on it. REQUIRES: `step` is the latest one. A
  // prompt has plan == step.number if and only if it takes part in the step.
  void Charge(const StepPlan& step);
  // Returns true if `a` loses its blocks before `b`. Low-priority jobs lose them first, then
  // prompts of the tenant with the greatest virtual time, then prompts that run later.
  bool GivesWayBefore(const PrefillPrompt& a, const PrefillPrompt& b) const;

  auto begin() const { return prompts_.begin(); }
  auto end() const { return prompts_.end(); }

 private:
  struct RunsBefore {
    bool operator()(const PrefillPrompt* a, const PrefillPrompt* b) const;
  };
  void AddLine(const std::string& tenant, std::vector<PrefillPrompt*> line, StepPlan& step);

  std::set<PrefillPrompt*, RunsBefore> prompts_;
  FairQueue fair_queue_;
  absl::flat_hash_set<std::string> oldest_first_;  // tenants whose oldest prompt comes first
  uint64_t steps_ = 0;
};

}  // namespace baton
