// The KV memory of a tensor-parallel group, whose ranks each have the KV heads that they compute, as one slab.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kv/slab.h"

namespace baton {

// Bytes [begin, end) of each plane: K or V of one layer of a block, all heads' one after another.
struct StripeRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t width() const { return end - begin; }
};

// A rank's memory: what it has of each plane, plane after plane.
struct Stripe {
  Slab memory;
  StripeRange range;
};

// Offsets in it are those that the whole model's blocks would have in one slab. Nothing lies at its addresses.
class StripedSlab final : public SlabAccess {
 public:
  // REQUIRES: the stripes' ranges are [0, plane_bytes) in order, and all have as many planes. Does not own their
  // memory. RESOURCE_EXHAUSTED: there are no addresses for it.
  static absl::StatusOr<std::unique_ptr<StripedSlab>> Make(int64_t plane_bytes, std::vector<Stripe> stripes);
  ~StripedSlab() override;
  StripedSlab(const StripedSlab&) = delete;
  StripedSlab& operator=(const StripedSlab&) = delete;

  Slab slab() const { return {addresses_, this}; }

  // Between whole planes [a, b) of this slab and the host's memory, where they lie stripe after stripe: only a copy of
  // the same planes puts them back.
  absl::Status Copy(std::span<const MemoryCopy> copies) const override;
  absl::StatusOr<HostMemory> AllocateHost(size_t bytes) const override;

 private:
  StripedSlab(int64_t plane_bytes, std::vector<Stripe> stripes, std::span<std::byte> addresses)
      : plane_bytes_(plane_bytes), stripes_(std::move(stripes)), addresses_(addresses) {}
  bool Contains(const void* pointer) const;
  void Split(const MemoryCopy& copy, std::vector<std::vector<MemoryCopy>>& by_stripe) const;

  const int64_t plane_bytes_;
  const std::vector<Stripe> stripes_;
  const std::span<std::byte> addresses_;  // reserved, never backed
};

}  // namespace baton
