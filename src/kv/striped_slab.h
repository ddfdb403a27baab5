// The KV memory of a tensor-parallel group, presented as one slab. Each rank stores the KV heads
// that it computes.
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

// Bytes [begin, end) of each plane. A plane is the K or the V of one layer of a block, head after
// head.
struct StripeRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t width() const { return end - begin; }
};

// The memory of one rank: its range of each plane, plane after plane.
struct Stripe {
  Slab memory;
  StripeRange range;
};

// A slab with the offsets that the whole model's blocks have in one slab. Its addresses are
// reserved and not backed by memory, so only Copy can use them.
class StripedSlab final : public SlabAccess {
 public:
  // Makes a slab of `stripes`. It does not own their memory. Fails with RESOURCE_EXHAUSTED if the
  // address space is exhausted. REQUIRES: the ranges cover [0, plane_bytes) in order, and all
  // stripes have the same number of planes.
  static absl::StatusOr<std::unique_ptr<StripedSlab>> Make(int64_t plane_bytes, std::vector<Stripe> stripes);
  ~StripedSlab() override;
  StripedSlab(const StripedSlab&) = delete;
  StripedSlab& operator=(const StripedSlab&) = delete;

  Slab slab() const { return {addresses_, this}; }

  // Copies between whole planes of this slab and host memory. The host memory of one copy has all
  // planes of the first stripe, then all planes of the next stripe, and so on. Only a copy of the
  // same planes restores them.
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
