// A router's estimate of the blocks in a prefill worker's prefix cache.
//
// The estimate covers prompts of this router only: prompts that the worker prefills now, and
// prompts whose KV is complete. The least recently used of these is evicted first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "base/lru_map.h"
#include "kv/prefix_key.h"

namespace baton {

class PrefixMemory {
 public:
  // REQUIRES: capacity >= 1.
  explicit PrefixMemory(size_t capacity) : done_(capacity) {}

  // Returns the length of the longest prefix of `keys` whose blocks the worker should have.
  int64_t LeadingHits(std::span<const BlockKey> keys) const;
  // Adds the blocks of a prompt that the worker is prefilling, until EndPrompt. A prompt that fails
  // or is cancelled leaves no blocks.
  void BeginPrompt(std::span<const BlockKey> keys);
  // REQUIRES: BeginPrompt was called with the same keys, once for each call of EndPrompt.
  void EndPrompt(std::span<const BlockKey> keys);
  // Adds blocks whose KV the worker has completed.
  void Remember(std::span<const BlockKey> keys);
  // Number of blocks of prompts that are being prefilled. A block counts once for each prompt.
  int64_t under_way() const;

 private:
  struct Nothing {};
  LruMap<BlockKey, Nothing> done_;
  absl::flat_hash_map<BlockKey, int32_t> under_way_;  // prompts with the block; never 0
};

}  // namespace baton
