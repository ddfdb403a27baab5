// Whether there is room in the pool for a prompt, and whose blocks make some.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/prefill/kv_leases.h"
#include "engine/prefill/prompt.h"
#include "engine/prefill/prompt_queue.h"
#include "kv/block_pool.h"
#include "kv/radix_tree.h"

namespace baton {

// A prompt is admitted when all the blocks that it can still need are free or can be evicted, beside those promised to
// prompts admitted before it. So an admitted prompt never waits for blocks, and there is no deadlock.
//
// Where a prompt lacks room, low-priority jobs lose their blocks to it. To a closed prompt, streaming prompts and those
// that streamed until lately lose theirs as well. For a closed prompt leases end too, the earliest to end first, if all
// of them would make enough room. A low-priority job takes room from no other. Prompts of the planned step keep their
// blocks.
//
// Not thread-safe. All arguments of the constructor must outlive it.
class PrefillAdmission {
 public:
  PrefillAdmission(const BlockPool& pool, RadixTree& tree, const PrefillPrompts& prompts, const PromptQueue& queue,
                   KvLeases& leases)
      : pool_(pool), tree_(tree), prompts_(prompts), queue_(queue), leases_(leases) {}

  // INVALID_ARGUMENT, with needed and total blocks: a prompt of so many tokens can never fit.
  absl::Status CheckFits(int64_t tokens) const;
  // Blocks promised to admitted prompts.
  int64_t Reserved() const;
  // Blocks to which no table refers and that are promised to no prompt.
  int64_t Unpromised() const { return tree_.Available() - Reserved(); }

  // False if there is no room for the prompt. `reserved` is Reserved() as the planned step leaves it, and is kept up to
  // date. `give_back` is called with each prompt whose blocks are taken: it gives them up and waits to begin again.
  bool Admit(PrefillPrompt& prompt, int64_t& reserved, absl::FunctionRef<void(PrefillPrompt&)> give_back);

 private:
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
