#include "router/prefix_memory.h"

#include <algorithm>
#include <ranges>

namespace baton {

int64_t PrefixMemory::LeadingHits(std::span<const BlockKey> keys) const {
  return std::ranges::find_if(keys, [&](const BlockKey& key) { return !keys_.Contains(key); }) - keys.begin();
}

void PrefixMemory::Remember(std::span<const BlockKey> keys) {
  // Last block first, so that a prompt is forgotten from its end: without its first block the rest finds nothing.
  for (const BlockKey& key : std::views::reverse(keys)) keys_.Put(key, {});
}

}  // namespace baton
