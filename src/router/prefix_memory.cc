#include "router/prefix_memory.h"

#include <algorithm>
#include <ranges>

#include "base/check.h"

namespace baton {

int64_t PrefixMemory::LeadingHits(std::span<const BlockKey> keys) const {
  const auto unknown = [&](const BlockKey& key) { return !done_.Contains(key) && !under_way_.contains(key); };
  return std::ranges::find_if(keys, unknown) - keys.begin();
}

void PrefixMemory::BeginPrompt(std::span<const BlockKey> keys) {
  for (const BlockKey& key : keys) ++under_way_[key];
}

void PrefixMemory::EndPrompt(std::span<const BlockKey> keys) {
  for (const BlockKey& key : keys) {
    const auto found = under_way_.find(key);
    BATON_CHECK(found != under_way_.end(), "EndPrompt without BeginPrompt");
    if (--found->second == 0) under_way_.erase(found);
  }
}

int64_t PrefixMemory::under_way() const {
  int64_t blocks = 0;
  for (const auto& [key, prompts] : under_way_) blocks += prompts;
  return blocks;
}

void PrefixMemory::Remember(std::span<const BlockKey> keys) {
  // The prompt's last block becomes the least recently used of its blocks. A prompt is thus evicted
  // from its end, and its remaining blocks still form a prefix.
  for (const BlockKey& key : std::views::reverse(keys)) done_.Put(key, {});
}

}  // namespace baton
