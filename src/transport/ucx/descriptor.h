// The descriptor of a UCX transport, by which peers can write into its slab.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton {

// The scratch area follows the slab in the same registered memory. The self-test of a peer writes
// only there.
struct UcxDescriptor {
  std::string ucx_version;
  uint64_t base = 0;            // address of the slab in the peer's process
  uint64_t slab_bytes = 0;      // [base, base + slab_bytes)
  uint64_t scratch_offset = 0;  // from base; [scratch_offset, scratch_offset + kScratchBytes)
  std::string worker_address;
  std::string rkey;        // empty if UCX cannot access the memory
  uint64_t on_device = 0;  // 1: device memory; 0: host memory
  std::string shared;      // SlabDevice::Share of device memory; empty if it is not shared
};

inline constexpr int64_t kScratchBytes = int64_t{4} << 20;

// Encodes a descriptor in the form of transport/descriptor_fields.h.
std::string Encode(const UcxDescriptor& descriptor);

// Decodes a descriptor. INVALID_ARGUMENT states the reason. UCX crashes on a damaged worker
// address, so a descriptor that fails here must not reach UCX. The digest detects damage and not
// forgery. Therefore only trusted peers may have access to the port.
absl::StatusOr<UcxDescriptor> DecodeUcxDescriptor(std::string_view bytes);

}  // namespace baton
