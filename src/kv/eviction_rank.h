// The order in which cached blocks are evicted. The radix tree and the staging tiers report facts
// about their blocks, and EvictionRank orders the blocks by these facts. docs/design/eviction.md
// has the reasons.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/time/time.h"

namespace baton {

// The reason why a path of blocks is evicted after unprotected blocks, until Unprotect. Protections
// are ordered, and the lesser one is the weaker one. From weak to strong:
//
// - A session used the path within the last 10 s (the router's kSessionProtection). The protection
//   that ends first is the weakest.
// - A queued job needs the path. The protection of a job that runs later is weaker.
//
// `number` is unique among protections of a kind. A lease (KvLeases) is not a protection: it refers
// to its blocks, so they cannot be evicted before it ends.
class Protection {
 public:
  // If several sessions' protections end at the same time, a higher `number` is weaker.
  static Protection OfSession(absl::Time until, uint64_t number);
  // A job with a higher priority runs earlier, then one with an earlier `queue_order`, then one
  // with a lower `number`.
  static Protection OfQueuedJob(int32_t priority, absl::Time queue_order, uint64_t number);

  friend auto operator<=>(const Protection&, const Protection&) = default;
  template <typename Hash>
  friend Hash AbslHashValue(Hash hash, const Protection& protection) {
    return Hash::combine(std::move(hash), protection.value_);
  }

 private:
  enum class Kind : uint8_t { kOfSession, kOfQueuedJob };
  // Kind, priority, time, number. In each element, the greater value is the stronger.
  using Value = std::tuple<Kind, int32_t, absl::Duration, uint64_t>;
  explicit Protection(const Value& value) : value_(value) {}

  Value value_;
};

// The facts about a block on which its rank depends.
struct EvictionFacts {
  bool has_copy = false;                   // true if another tier holds the same bytes
  std::optional<Protection> protection{};  // the strongest one; empty if the block has none
  int64_t last_use = 0;                    // number of the last use, unique in the tier
  // Added to last_use. The radix tree grants it to blocks that were used again (RadixTree).
  int64_t credit = 0;
};

// The rank of a block. The block with the least rank is evicted first. Blocks with a copy have the
// least rank, then blocks without protection, then blocks with the weakest protection. Among
// equals, the block with the least last_use + credit is first.
class EvictionRank {
 public:
  explicit EvictionRank(const EvictionFacts& facts)
      : value_(!facts.has_copy, facts.protection, facts.last_use + facts.credit, facts.last_use) {}

  friend auto operator<=>(const EvictionRank&, const EvictionRank&) = default;

 private:
  std::tuple<bool, std::optional<Protection>, int64_t, int64_t> value_;
};

}  // namespace baton
