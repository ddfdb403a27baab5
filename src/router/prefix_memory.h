// Roughly which blocks a prefill worker's cache holds: those of prompts that it said it had done for this router, least
// recently used forgotten first, and those of prompts that are under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "kv/prefix_key.h"
#include "router/lru_map.h"

namespace baton {

class PrefixMemory {
 public:
  explicit PrefixMemory(size_t capacity) : done_(capacity) {}  // REQUIRES: capacity >= 1

  // How many of the first blocks are known, up to the first that is not.
  int64_t LeadingHits(std::span<const BlockKey> keys) const;
  // They are computed, as far as anyone can tell, until Left. What fails or is cancelled leaves nothing behind.
  void UnderWay(std::span<const BlockKey> keys);
  void Left(std::span<const BlockKey> keys);  // REQUIRES: UnderWay, as often
  void Remember(std::span<const BlockKey> keys);
  int64_t under_way() const;  // blocks, each as often as there are prompts with it

 private:
  struct Nothing {};
  LruMap<BlockKey, Nothing> done_;
  absl::flat_hash_map<BlockKey, int32_t> under_way_;  // by how many prompts; never 0
};

}  // namespace baton
