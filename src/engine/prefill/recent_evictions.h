// The blocks that a worker has evicted last.
#pragma once

#include <cstdint>
#include <deque>

#include "absl/container/flat_hash_map.h"
#include "kv/prefix_key.h"

namespace baton {

// Remembers the latest `most` evictions. Not thread-safe.
class RecentEvictions {
 public:
  explicit RecentEvictions(int64_t most) : most_(most) {}

  void Add(const BlockKey& key) {
    keys_.push_back(key);
    ++counts_[key];
    if (std::ssize(keys_) <= most_) return;
    const auto oldest = counts_.find(keys_.front());
    if (--oldest->second == 0) counts_.erase(oldest);
    keys_.pop_front();
  }
  bool Contains(const BlockKey& key) const { return counts_.contains(key); }

 private:
  const int64_t most_;
  std::deque<BlockKey> keys_;                        // oldest first
  absl::flat_hash_map<BlockKey, int64_t> counts_{};  // of keys_; never 0
};

}  // namespace baton
