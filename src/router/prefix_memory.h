// Roughly which blocks a prefill worker's cache holds: what the router sent it, least recently sent forgotten first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kv/prefix_key.h"
#include "router/lru_map.h"

namespace baton {

class PrefixMemory {
 public:
  explicit PrefixMemory(size_t capacity) : keys_(capacity) {}

  // How many of the first blocks are known, up to the first that is not.
  int64_t LeadingHits(std::span<const BlockKey> keys) const;
  void Remember(std::span<const BlockKey> keys);

 private:
  struct Nothing {};
  LruMap<BlockKey, Nothing> keys_;
};

}  // namespace baton
