// Ids as distinct types. The compiler rejects a request id where a function expects a block id.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {

// A number of one kind of id. Tag is an empty struct that names the kind.
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

// Index into a vocabulary. A plain integer, because kernels and files hold arrays of token ids.
using TokenId = int32_t;

// Index into one worker's slab of KV blocks.
using BlockId = Id<struct BlockIdTag, uint32_t>;
// Unique within one incarnation of a decode worker.
using ReservationId = Id<struct ReservationIdTag, uint64_t>;
// Counts every reservation that a worker makes. Never reused.
using Generation = Id<struct GenerationTag, uint64_t>;
// The router for which a prefill worker keeps KV under a lease.
using LeaseHolder = Id<struct LeaseHolderTag, uint64_t>;
// The connection of a router to a decode worker.
using RouterStream = Id<struct RouterStreamTag, uint64_t>;
// A random number, generated once when the process starts.
using Incarnation = Id<struct IncarnationTag, uint64_t>;

// Names one link of a prefill worker to a decode worker. The decode worker chooses it.
using WriterId = Id<struct WriterIdTag, uint64_t>;

// Names one reservation of a decode worker, never to be reused. A later reservation may have the
// same id but has another generation. A worker derives its first generation from its incarnation. A
// restarted worker therefore never accepts a reservation of its predecessor.
struct ReservationRef {
  ReservationId id;
  Generation generation;
  friend auto operator<=>(const ReservationRef&, const ReservationRef&) = default;
};

// Chosen by the router. Unique in the cluster. Visible to users and in logs.
using RequestId = std::string;
// The host:port of a worker's control service. Peers use the address as the worker's name.
using WorkerAddress = std::string;

}  // namespace baton
