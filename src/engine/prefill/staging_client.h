// What prompts do with KV that was evicted: they hold it, wait for it and bring it back; and they protect what the
// cache still has.
#pragma once

#include <cstdint>

#include "engine/prefill/prompt.h"
#include "kv/block_pool.h"
#include "kv/radix_tree.h"
#include "kv/staging/staging.h"

namespace baton {

// What is evicted is staged, and what is staged is brought back as part of a step, before its batch runs; it is
// promised like what is computed. A prompt that comes holds what of it is staged, and has it read where it is on disk:
// it is not planned until that is over, and holds up no other prompt meanwhile. Much of it comes back over several
// steps. For a prompt in the background nothing is held or read: no caller waits for it, and it uses what it finds when
// it runs.
//
// Not thread-safe. The tree must outlive it.
class StagingClient {
 public:
  // `step_blocks`: that a step computes at most; copies into a step take no longer than computing these.
  StagingClient(RadixTree& tree, StagingOptions options, int64_t step_blocks)
      : tree_(tree), staging_(options), step_blocks_(step_blocks) {}

  // Holds what of the prompt is staged behind what the cache has. Returns how many of its tokens are in the cache or
  // staged. From token `from` on, what is in the cache was not counted as used for it yet.
  int64_t Expect(PrefillPrompt& prompt, int64_t from);
  void Release(PrefillPrompt& prompt);
  // Whether it has to wait for reads. Looks once more before the prompt begins, since some of its prefix may have been
  // evicted meanwhile.
  bool WaitsForDisk(PrefillPrompt& prompt);
  // Makes what is staged behind what the cache has a part of the step. False: the rest of it is for a later step, so
  // that the others of this one do not wait longer for copies than for what it computes.
  bool BringBack(PrefillPrompt& prompt);
  // A block of the pool; what is evicted for it is staged. REQUIRES: there is one.
  BlockRef Allocate();

  // Protects what the cache has of a prompt that waits to begin; not of one that streams, and waits for tokens, or of
  // negative priority, and waits for all others. Anew, where the prompt's order has changed.
  void Protect(PrefillPrompt& prompt);
  void Unprotect(PrefillPrompt& prompt);

  KvStaging& staging() { return staging_; }
  const KvStaging& staging() const { return staging_; }

 private:
  RadixTree& tree_;
  KvStaging staging_;
  const int64_t step_blocks_;
};

}  // namespace baton
