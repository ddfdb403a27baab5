#include "engine/prefill/admission.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "kv/block_layout.h"

namespace baton {

absl::Status PrefillAdmission::CheckFits(int64_t tokens) const {
  const int64_t total = pool_.counts().total;
  if (BlocksFor(tokens) <= total) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the prompt can never fit: its KV of ", tokens, " tokens needs ", BlocksFor(tokens),
                   " blocks, this prefill worker has ", total, " (", total * kBlockTokens,
                   " tokens); shorten the prompt, or raise --kv-memory-mb of the prefill workers"));
}

int64_t PrefillAdmission::Reserved() const {
  int64_t blocks = 0;
  for (const PrefillPrompt* prompt : queue_) {
    if (prompt->admitted) blocks += prompt->Outstanding();
  }
  return blocks;
}

// Returns the keys of the full blocks that the prompt may still need.
std::span<const BlockKey> PrefillAdmission::KeysOfWanted(const PrefillPrompt& prompt) const {
  const size_t full = std::min(prompt.keys.size(), static_cast<size_t>(BlocksFor(prompt.wanted)));
  return std::span<const BlockKey>(prompt.keys).first(full);
}

// Returns how many of the prompt's blocks are not ready.
int64_t PrefillAdmission::Lacking(const PrefillPrompt& prompt) const {
  return BlocksFor(prompt.wanted) - tree_.ReadyPrefix(KeysOfWanted(prompt));
}

// Returns how many available blocks the prompt would take. A ready block that a table refers to,
// perhaps the prompt's own table, costs nothing. A ready block without a reference counts, because
// it is available until the prompt refers to it.
int64_t PrefillAdmission::Needed(const PrefillPrompt& prompt) const {
  return Lacking(prompt) + tree_.CachedInPrefix(KeysOfWanted(prompt));
}

// Protected blocks of the prompt's own path count neither as room nor as need.
bool PrefillAdmission::HasSpare(const PrefillPrompt& prompt, const StepPlan& step) const {
  const int64_t needed = Lacking(prompt) + tree_.UnprotectedInPrefix(KeysOfWanted(prompt)) + step.reserved;
  const int64_t cached = needed - pool_.counts().free;
  return tree_.Unprotected(cached) >= cached;
}

bool PrefillAdmission::Admit(PrefillPrompt& prompt, StepPlan& step, absl::FunctionRef<void(PrefillPrompt&)> give_back) {
  MakeRoom(prompt, step.reserved, give_back);
  if (!Fits(prompt, step.reserved)) return false;
  prompt.admitted = true;
  step.reserved += Needed(prompt);
  if (!prompt.Yields()) step.spent[prompt.spec.tenant] += kBlockTokens;
  return true;
}

// Returns all prompts that may lose their blocks to `prompt`.
std::vector<PrefillPrompt*> PrefillAdmission::Victims(const PrefillPrompt& prompt) const {
  std::vector<PrefillPrompt*> victims;
  for (const auto& [id, other] : prompts_) {
    const bool in_step = other->planned > other->done;
    const bool gives_way = other->is_low_priority() || (!other->progress_reported && !prompt.streaming);
    const bool has_some = other->table.size() > 0 || other->admitted;
    if (gives_way && has_some && !in_step && other.get() != &prompt) victims.push_back(other.get());
  }
  return victims;
}

void PrefillAdmission::MakeRoom(const PrefillPrompt& prompt, int64_t& reserved,
                                absl::FunctionRef<void(PrefillPrompt&)> give_back) {
  if (prompt.is_low_priority() || Fits(prompt, reserved)) return;
  std::vector<PrefillPrompt*> victims = Victims(prompt);
  // A streaming prompt takes blocks only if they are enough.
  if (prompt.streaming && Needed(prompt) > tree_.Available() - reserved + Given(victims)) return;
  std::ranges::sort(victims,
                    [this](const PrefillPrompt* a, const PrefillPrompt* b) { return queue_.GivesWayBefore(*a, *b); });
  for (PrefillPrompt* victim : victims) {
    if (Fits(prompt, reserved)) return;
    if (IsPromised(*victim)) reserved -= victim->Outstanding();
    give_back(*victim);
  }
  if (!prompt.streaming) EndLeases(prompt, reserved);
}

// Returns an upper bound on the blocks that the victims could give back.
int64_t PrefillAdmission::Given(const std::vector<PrefillPrompt*>& victims) const {
  int64_t blocks = 0;
  for (const PrefillPrompt* victim : victims) {
    blocks += static_cast<int64_t>(victim->table.size()) + (IsPromised(*victim) ? victim->Outstanding() : 0);
  }
  return blocks;
}

// Ends leases until the prompt has room. Ends none if all of them together would not make enough.
void PrefillAdmission::EndLeases(const PrefillPrompt& prompt, int64_t reserved) {
  const auto lacking = [&] { return Needed(prompt) - (tree_.Available() - reserved); };
  if (lacking() > leases_.blocks()) return;
  while (lacking() > 0 && leases_.blocks() > 0) leases_.EndFirst();
}

}  // namespace baton
