// The part of the scheduler that connects prompts with staged KV, the evicted blocks in host memory
// or on disk.
#pragma once

#include <cstdint>

#include "engine/prefill/prompt.h"
#include "engine/prefill/recent_evictions.h"
#include "engine/prefill/step_plan.h"
#include "kv/block_pool.h"
#include "kv/radix_tree.h"
#include "kv/staging/staging.h"

namespace baton {

// Stages blocks that are evicted, and brings staged blocks back to the prompts that need them.
//
// - A prompt that arrives holds its staged blocks, and blocks on disk are read. The scheduler
//   leaves the prompt out of steps until these reads have ended. Other prompts do not wait for
//   them.
// - A step copies staged blocks into the pool before its batch runs. These blocks are promised
//   until the step ends, like blocks that the step computes. Many blocks come back over several
//   steps.
// - A low-priority job holds and reads nothing, because no client waits for it. It uses the blocks
//   that it finds in the cache or in host memory when it runs.
// - Blocks that are still in the cache are protected from eviction for queued prompts.
//
// Not thread-safe. The tree must outlive it.
class StagingClient {
 public:
  // WasEvicted remembers `evictions` evictions.
  StagingClient(RadixTree& tree, StagingOptions options, int64_t evictions)
      : tree_(tree), staging_(options), evicted_(evictions) {}

  // Finds the prompt's ready prefix in the cache and holds the staged blocks that follow it.
  // Returns how many tokens both have together. Ready blocks from token `from` on become the most
  // recently used. For a low-priority job it only returns the tokens of the ready prefix.
  int64_t Expect(PrefillPrompt& prompt, int64_t from);
  // Releases the staged blocks that the prompt holds.
  void Release(PrefillPrompt& prompt);
  // Returns true if the prompt must wait for reads from disk. The first call calls Expect again,
  // because blocks of the prompt may have been evicted since it arrived.
  bool WaitsForDisk(PrefillPrompt& prompt);
  // Adds to the step the staged blocks that follow the blocks in the prompt's table. Returns false
  // if some are left for a later step. A block comes back only if the copies planned so far and
  // this one take no longer than computing step.most_tokens tokens, as measured. The first block
  // always does.
  bool BringBack(PrefillPrompt& prompt, const StepPlan& step);
  // Returns a block of the pool, and stages a block that is evicted for it. REQUIRES: the pool has
  // a block that is free or can be evicted.
  BlockRef Allocate();
  // Returns true if the block was evicted recently, and no copy is in host memory.
  bool WasEvicted(const BlockKey& key) const { return evicted_.Contains(key) && !staging_.IsHere(key); }

  // Protects the cached blocks of a queued prompt from eviction. A second call applies a changed
  // queue order. A streaming prompt gets no protection, because it waits for tokens. A prompt of
  // negative priority gets none, because it waits for all other prompts.
  void Protect(PrefillPrompt& prompt);
  void Unprotect(PrefillPrompt& prompt);

  KvStaging& staging() { return staging_; }
  const KvStaging& staging() const { return staging_; }

 private:
  RadixTree& tree_;
  KvStaging staging_;
  RecentEvictions evicted_;
};

}  // namespace baton
