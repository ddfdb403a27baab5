// Admission of prompts to the KV pool, and the choice of prompts that give up blocks for others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/prefill/kv_leases.h"
#include "engine/prefill/prompt.h"
#include "engine/prefill/prompt_queue.h"
#include "engine/prefill/step_plan.h"
#include "kv/block_pool.h"
#include "kv/prefix_key.h"
#include "kv/radix_tree.h"

namespace baton {

// A prompt is admitted if the pool can give it all blocks that it may still need, after the blocks
// reserved for prompts admitted earlier. An admitted prompt therefore never waits for blocks, so
// there is no deadlock.
//
// A prompt that lacks room takes blocks of other prompts:
//
// - A closed prompt takes the blocks of low-priority jobs and of prompts without reported progress
//   (PrefillPrompt::progress_reported), which stream or have closed recently. If that is not enough
//   and all leases together have enough blocks, it then ends leases in order of their ends.
// - A streaming prompt takes the blocks of low-priority jobs, if that is enough.
// - A low-priority job takes no blocks.
//
// Prompts of the step that is being planned keep their blocks.
//
// Not thread-safe. All arguments of the constructor must outlive it.
class PrefillAdmission {
 public:
  PrefillAdmission(const BlockPool& pool, RadixTree& tree, const PrefillPrompts& prompts, const PromptQueue& queue,
                   KvLeases& leases)
      : pool_(pool), tree_(tree), prompts_(prompts), queue_(queue), leases_(leases) {}

  // Returns INVALID_ARGUMENT, with needed and total tokens and blocks, if a prompt of `tokens`
  // KV tokens can never fit.
  absl::Status CheckFits(int64_t tokens) const;
  // Returns how many blocks are reserved for admitted prompts that have not taken them yet.
  int64_t Reserved() const;
  // Returns how many available blocks are not reserved for a prompt.
  int64_t Unpromised() const { return tree_.Available() - Reserved(); }

  // Returns true if blocks for the prompt are free, or cached without protection.
  bool HasSpare(const PrefillPrompt& prompt, const StepPlan& step) const;

  // Sets the step's reserved blocks.
  void BeginStep(StepPlan& step) const { step.reserved = Reserved(); }
  // Admits the prompt, or returns false if there is no room. Reserves the prompt's blocks, and
  // charges its tenant one block of tokens unless the prompt yields. Calls `give_back` with each
  // prompt whose blocks it takes. `give_back` must release these blocks and clear `admitted`.
  // REQUIRES: step.reserved is Reserved() minus the blocks that the step has taken.
  bool Admit(PrefillPrompt& prompt, StepPlan& step, absl::FunctionRef<void(PrefillPrompt&)> give_back);

 private:
  std::span<const BlockKey> KeysOfWanted(const PrefillPrompt& prompt) const;
  int64_t Lacking(const PrefillPrompt& prompt) const;
  int64_t Needed(const PrefillPrompt& prompt) const;
  bool Fits(const PrefillPrompt& prompt, int64_t reserved) const {
    return Needed(prompt) <= tree_.Available() - reserved;
  }
  std::vector<PrefillPrompt*> Victims(const PrefillPrompt& prompt) const;
  bool IsPromised(const PrefillPrompt& prompt) const { return prompt.admitted && queue_.contains(&prompt); }
  int64_t Given(const std::vector<PrefillPrompt*>& victims) const;
  void MakeRoom(const PrefillPrompt& prompt, int64_t& reserved, absl::FunctionRef<void(PrefillPrompt&)> give_back);
  void EndLeases(const PrefillPrompt& prompt, int64_t reserved);

  const BlockPool& pool_;
  RadixTree& tree_;
  const PrefillPrompts& prompts_;
  const PromptQueue& queue_;
  KvLeases& leases_;
};

}  // namespace baton
