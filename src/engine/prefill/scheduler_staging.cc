// What PrefillScheduler does with KV that was evicted, and to spare what is expected.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "engine/prefill/scheduler.h"
#include "kv/block_layout.h"

namespace baton {

// How many of its tokens are in the cache or staged. From token `from` on, what is in the cache was not counted as used
// for it yet. Nobody waits for a job in the background: it uses what it finds when it runs.
int64_t PrefillScheduler::Expect(Request& request, int64_t from) {
  const std::span<const BlockKey> keys(request.task.keys);
  const auto ready = static_cast<size_t>(tree_.ReadyPrefix(keys));
  if (IsBackground(request.task.priority)) return static_cast<int64_t>(ready) * kBlockTokens;
  const auto first = std::min(ready, static_cast<size_t>(from / kBlockTokens));
  tree_.Refresh(keys.subspan(first, ready - first));
  ReleaseStaged(request);
  request.staged_begin = ready;
  request.staged_end = ready + static_cast<size_t>(staging_.Hold(keys.subspan(ready)));
  return static_cast<int64_t>(request.staged_end) * kBlockTokens;
}

void PrefillScheduler::ReleaseStaged(Request& request) {
  const std::span<const BlockKey> keys(request.task.keys);
  staging_.Release(keys.subspan(request.staged_begin, request.staged_end - request.staged_begin));
  request.staged_begin = request.staged_end;
}

void PrefillScheduler::Spare(Request& request) {
  SpareNoMore(request);
  if (request.task.open || request.task.priority < 0 || !active_.contains(&request)) return;
  const int64_t ready = tree_.ReadyPrefix(request.task.keys);
  if (ready == 0) return;
  request.spares = {-int64_t{request.task.priority}, request.task.turn, request.arrival};
  tree_.Spare(request.task.keys[static_cast<size_t>(ready) - 1], *request.spares);
}

void PrefillScheduler::SpareNoMore(Request& request) {
  if (request.spares) tree_.SpareNoMore(*std::exchange(request.spares, std::nullopt));
}

// Looks once more before it begins: meanwhile some of its prefix may have been evicted.
bool PrefillScheduler::WaitsForDisk(Request& request) {
  if (staging_.enabled() && !std::exchange(request.looked_again, true)) Expect(request, request.wanted);
  const std::span<const BlockKey> keys(request.task.keys);
  const size_t end = std::min(request.staged_end, static_cast<size_t>(request.wanted / kBlockTokens));
  for (size_t i = request.staged_begin; i < end; ++i) {
    if (staging_.IsComing(keys[i])) return true;
  }
  return false;
}

BlockRef PrefillScheduler::Allocate() {
  std::optional<BlockRef> block =
      tree_.Allocate([this](const BlockKey& key, BlockId evicted) { staging_.Keep(key, evicted); });
  BATON_CHECK(block.has_value(), "an admitted request found no block");
  return *std::move(block);
}

// What is staged after what the cache has becomes part of the step. False: the rest of it is for a later one, for who
// waits for this step should not wait longer for copies than for what it computes.
bool PrefillScheduler::BringBack(Request& request) {
  request.own_begin = request.planned;
  const std::span<const BlockKey> keys(request.task.keys);
  while (request.planned + kBlockTokens <= request.wanted) {
    const size_t index = request.table.size();
    if (tree_.Find(keys[index]) != RadixTree::State::kAbsent || !staging_.IsHere(keys[index])) break;
    if (!staging_.MayCopyIn(step_tokens_ / kBlockTokens)) return false;
    staging_.UseInStep(keys[index]);
    BlockRef block = Allocate();
    const KvStaging::Tier tier = staging_.CopyIn(keys[index], block.id());
    (tier == KvStaging::Tier::kHost ? request.counters.from_host : request.counters.from_disk) += kBlockTokens;
    tree_.Promise(keys.first(index + 1), block);
    request.table.Append(std::move(block));
    request.planned += kBlockTokens;
  }
  return true;
}

}  // namespace baton
