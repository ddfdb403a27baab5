// Ids are types, not integers: a request id cannot be passed where a block id is meant.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {

// A number with a meaning. Tag is an empty struct, one for each kind of id.
template <typename Tag, typename Rep>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(Id, Id) = default;
  template <typename H>
  friend H AbslHashValue(H h, Id id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  Rep value_ = 0;
};

using TokenId = int32_t;  // an index into a vocabulary; plain, because kernels and files hold arrays of it

using BlockId = Id<struct BlockIdTag, uint32_t>;              // an index into one worker's slab of KV blocks
using ReservationId = Id<struct ReservationIdTag, uint64_t>;  // unique within one decode worker incarnation
using Generation = Id<struct GenerationTag, uint64_t>;        // counts every reservation made; never reused
using LeaseHolder = Id<struct LeaseHolderTag, uint64_t>;      // for whom a prefill worker keeps KV: one of its routers
using Incarnation = Id<struct IncarnationTag, uint64_t>;      // random, drawn once at process start

// Names one reservation of a decode worker for all time. A later reservation may have the same id, but it has another
// generation. A worker draws its first generation from its incarnation, so that a restarted worker does not take its
// predecessor's reservations for its own.
struct ReservationRef {
  ReservationId id;
  Generation generation;
  friend auto operator<=>(const ReservationRef&, const ReservationRef&) = default;
};

// Chosen by the router, unique in the cluster; shown to users and in logs.
using RequestId = std::string;
// How a worker is named to its peers: the host:port its control service listens on.
using WorkerAddress = std::string;

}  // namespace baton
