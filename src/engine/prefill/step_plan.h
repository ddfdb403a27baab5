// One prefill step while it is planned.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "engine/prefill/prompt.h"

namespace baton {

// The limits of a step and what is left of them. StepPlanner makes the struct and passes it to the
// other parts of the scheduler:
//
// - PromptQueue sets the number and the order, and charges the tenants at the end.
// - StreamingShare sets the tokens of prompts that yield, and decides which prompts take part.
// - PrefillAdmission reserves blocks for the prompts that it admits.
// - StagingClient limits the copies of the step.
// - StepPlanner takes the tokens that the step computes.
struct StepPlan {
  // The prompts that may take part in the step.
  enum class Candidates {
    kWorthwhile,       // closed prompts, and streaming prompts with enough waiting tokens
    kYielding,         // all prompts that yield
    kLowPriorityJobs,  // closed low-priority jobs
  };

  // `most` is the upper bound on tokens that the step computes.
  explicit StepPlan(int64_t most) : most_tokens(most), tokens(most) {}

  // Returns how many tokens the step can compute for the prompt.
  int64_t TokensFor(const PrefillPrompt& prompt) const {
    return prompt.Yields() ? std::min(tokens, yielding_tokens) : tokens;
  }
  // Takes `computed` tokens of the step for the prompt. Tenants do not pay for low-priority jobs.
  void Take(const PrefillPrompt& prompt, int64_t computed) {
    tokens -= computed;
    if (prompt.Yields()) yielding_tokens -= computed;
    if (computed > 0 && !prompt.is_low_priority()) spent[prompt.spec.tenant] += computed;
  }

  uint64_t number = 0;                   // of the step; PrefillPrompt::plan refers to it
  std::vector<PrefillPrompt*> order{};   // all queued prompts
  std::vector<PrefillPrompt*> firsts{};  // the first prompt of each tenant
  Candidates candidates = Candidates::kWorthwhile;
  const int64_t most_tokens;                      // upper bound on tokens of the step
  int64_t tokens;                                 // left
  int64_t yielding_tokens = 0;                    // of `tokens`, left for prompts that yield
  int64_t reserved = 0;                           // blocks reserved for admitted prompts
  absl::btree_map<std::string, int64_t> spent{};  // tokens to charge, by tenant
};

}  // namespace baton
