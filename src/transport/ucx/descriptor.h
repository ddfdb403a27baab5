// What a UCX peer tells others so that they can write into its slab.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton {

// The scratch area follows the slab in the same registered memory: a peer's self-test writes there and nowhere else.
struct UcxDescriptor {
  std::string ucx_version;
  uint64_t base = 0;            // address of the slab in the peer's process
  uint64_t slab_bytes = 0;      // [base, base + slab_bytes)
  uint64_t scratch_offset = 0;  // from base; [scratch_offset, scratch_offset + kScratchBytes)
  std::string worker_address;
  std::string rkey;        // empty: UCX itself cannot reach the memory
  uint64_t on_device = 0;  // 1: the memory is a device's, 0: the host's
  std::string shared;      // SlabDevice::Share of a device's memory; empty: it cannot be shared
};

inline constexpr int64_t kScratchBytes = int64_t{4} << 20;

// In the form of transport/descriptor_fields.h.
std::string Encode(const UcxDescriptor& descriptor);

// INVALID_ARGUMENT says what is wrong. UCX itself does not survive a damaged worker address, so nothing is handed to it
// that fails here. The digest finds damage, not malice: only peers that the operator trusts may reach this port.
absl::StatusOr<UcxDescriptor> DecodeUcxDescriptor(std::string_view bytes);

}  // namespace baton
