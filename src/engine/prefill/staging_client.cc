#include "engine/prefill/staging_client.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "kv/block_layout.h"

namespace baton {

int64_t StagingClient::Expect(PrefillPrompt& prompt, int64_t from) {
  const std::span<const BlockKey> keys(prompt.keys);
  const auto ready = static_cast<size_t>(tree_.ReadyPrefix(keys));
  // A low-priority job uses the blocks that it finds when it runs.
  if (prompt.is_low_priority()) return static_cast<int64_t>(ready) * kBlockTokens;
  const auto first = std::min(ready, static_cast<size_t>(from / kBlockTokens));
  tree_.Refresh(keys.subspan(first, ready - first));
  Release(prompt);
  prompt.staged_begin = ready;
  prompt.staged_end = ready + static_cast<size_t>(staging_.Hold(keys.subspan(ready)));
  return static_cast<int64_t>(prompt.staged_end) * kBlockTokens;
}

void StagingClient::Release(PrefillPrompt& prompt) {
  const std::span<const BlockKey> keys(prompt.keys);
  staging_.Release(keys.subspan(prompt.staged_begin, prompt.staged_end - prompt.staged_begin));
  prompt.staged_begin = prompt.staged_end;
}

bool StagingClient::WaitsForDisk(PrefillPrompt& prompt) {
  if (staging_.enabled() && !std::exchange(prompt.looked_again, true)) Expect(prompt, prompt.wanted);
  const std::span<const BlockKey> keys(prompt.keys);
  const size_t end = std::min(prompt.staged_end, static_cast<size_t>(prompt.wanted / kBlockTokens));
  for (size_t i = prompt.staged_begin; i < end; ++i) {
    if (staging_.IsComing(keys[i])) return true;
  }
  return false;
}

bool StagingClient::BringBack(PrefillPrompt& prompt, const StepPlan& step) {
  prompt.own_begin = prompt.planned;
  const std::span<const BlockKey> keys(prompt.keys);
  while (prompt.planned + kBlockTokens <= prompt.wanted) {
    const size_t index = prompt.table.size();
    if (tree_.Find(keys[index]) != RadixTree::State::kAbsent || !staging_.IsHere(keys[index])) break;
    if (!staging_.MayCopyIn(step.most_tokens / kBlockTokens)) return false;
    staging_.UseInStep(keys[index]);
    BlockRef block = Allocate();
    const KvStaging::Tier tier = staging_.CopyIn(keys[index], block.id());
    (tier == KvStaging::Tier::kHost ? prompt.counters.from_host : prompt.counters.from_disk) += kBlockTokens;
    tree_.Promise(keys.first(index + 1), block);
    prompt.table.Append(std::move(block));
    prompt.planned += kBlockTokens;
  }
  return true;
}

BlockRef StagingClient::Allocate() {
  std::optional<BlockRef> block = tree_.Allocate([this](const BlockKey& key, BlockId evicted) {
    staging_.Keep(key, evicted);
    evicted_.Add(key);
  });
  BATON_CHECK(block.has_value(), "an admitted request found no block");
  return *std::move(block);
}

void StagingClient::Protect(PrefillPrompt& prompt) {
  Unprotect(prompt);
  if (prompt.streaming || prompt.spec.priority < 0) return;
  const int64_t ready = tree_.ReadyPrefix(prompt.keys);
  if (ready == 0) return;
  prompt.protection = Protection::OfQueuedJob(prompt.spec.priority, prompt.queue_order, prompt.arrival);
  tree_.Protect(prompt.keys[static_cast<size_t>(ready) - 1], *prompt.protection);
}

void StagingClient::Unprotect(PrefillPrompt& prompt) {
  if (prompt.protection) tree_.Unprotect(*std::exchange(prompt.protection, std::nullopt));
}

}  // namespace baton
