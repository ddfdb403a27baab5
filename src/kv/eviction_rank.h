// The order in which cached blocks are evicted: one rule for the radix tree and for the tiers
// behind it. Classes report facts, and a rank compares them.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/time/time.h"

namespace baton {

// Why a path of blocks stays for now. The lesser of two protections is the weaker one, in this
// order:
//
// - A session used the path within the last 10 s (the router's kSessionLease). Of two sessions the
//   one whose protection ends first is the weaker.
// - A queued job needs the path. Of two jobs the one that runs later is the weaker.
// - A lease holds the path. Of two leases the one that ends first is the weaker.
//
// A leased block is referenced, so no rank evicts it. A lease gives way as a whole to a request
// that lacks room, the weakest lease before the others. `number` is unique among protections of a
// kind.
class Protection {
 public:
  // Of sessions whose protections end together, the one that was added last is the weakest.
  static Protection OfSession(absl::Time until, uint64_t number);
  // Jobs of a higher priority run first, then jobs that are earlier in `queue_order`, then jobs of
  // a lower number.
  static Protection OfQueuedJob(int32_t priority, absl::Time queue_order, uint64_t number);
  // Of leases that end together, the one that was granted first is the weakest.
  static Protection OfLease(absl::Time until, uint64_t number);

  friend auto operator<=>(const Protection&, const Protection&) = default;
  template <typename Hash>
  friend Hash AbslHashValue(Hash hash, const Protection& protection) {
    return Hash::combine(std::move(hash), protection.value_);
  }

 private:
  enum class Kind : uint8_t { kOfSession, kOfQueuedJob, kOfLease };
  // Kind, priority, a time from which later is stronger, and a number of which the higher is
  // stronger.
  using Value = std::tuple<Kind, int32_t, absl::Duration, uint64_t>;
  explicit Protection(const Value& value) : value_(value) {}

  Value value_;
};

// What is known of a block that may be evicted.
struct EvictionFacts {
  bool has_copy = false;                   // another tier has its bytes, too
  std::optional<Protection> protection{};  // the strongest one; empty: nothing protects it
  int64_t last_use = 0;                    // number of its last use, unique in its tier
  // Uses by which the last use counts as later. The tree gives a pool of uses to a block that was
  // used again after it was made, so that prompts that come once do not evict what comes back.
  int64_t credit = 0;
};

// The block of the least rank is evicted first: one that has a copy, then one that nothing
// protects, then one of the weakest protection. Among these it is the block whose last use counts
// as the earliest.
class EvictionRank {
 public:
  explicit EvictionRank(const EvictionFacts& facts)
      : value_(!facts.has_copy, facts.protection, facts.last_use + facts.credit, facts.last_use) {}

  friend auto operator<=>(const EvictionRank&, const EvictionRank&) = default;

 private:
  std::tuple<bool, std::optional<Protection>, int64_t, int64_t> value_;
};

}  // namespace baton
