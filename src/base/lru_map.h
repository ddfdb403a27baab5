// A map of bounded size that evicts the least recently used entry.
#pragma once

#include <cstddef>
#include <list>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace baton {

template <typename Key, typename Value>
class LruMap {
 public:
  // REQUIRES: capacity >= 1.
  explicit LruMap(size_t capacity) : capacity_(capacity) {}

  bool Contains(const Key& key) const { return index_.contains(key); }

  // Returns null if the key is absent. Does not count as a use. Valid until the next Put.
  const Value* Find(const Key& key) const {
    const auto found = index_.find(key);
    return found == index_.end() ? nullptr : &found->second->second;
  }

  // Adds or replaces an entry. It becomes the most recently used one.
  void Put(const Key& key, Value value) {
    if (const auto found = index_.find(key); found != index_.end()) {
      found->second->second = std::move(value);
      entries_.splice(entries_.begin(), entries_, found->second);
      return;
    }
    if (index_.size() >= capacity_) {
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
    entries_.emplace_front(key, std::move(value));
    index_.emplace(key, entries_.begin());
  }

  // Does nothing if the key is absent.
  void Erase(const Key& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return;
    entries_.erase(found->second);
    index_.erase(found);
  }

  size_t size() const { return index_.size(); }

 private:
  using Entries = std::list<std::pair<Key, Value>>;
  size_t capacity_;
  Entries entries_;  // most recently used first
  absl::flat_hash_map<Key, typename Entries::iterator> index_;
};

}  // namespace baton
