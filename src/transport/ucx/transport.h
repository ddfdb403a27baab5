// Blocks move by UCX: shared memory on one host, RDMA or TCP between hosts. Works with UCX 1.13 and later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "transport/transport.h"
#include "transport/ucx/inbox.h"
#include "transport/ucx/progress.h"

namespace baton {

class UcxTransport final : public Transport {
 public:
  // UNAVAILABLE where UCX finds no transport for the devices.
  static absl::StatusOr<std::unique_ptr<UcxTransport>> Create(const UcxOptions& options);

  // Which UCX this is and how it moves bytes, GPU memory too, in words: for logs and `--check`.
  std::string Description() const;

  absl::StatusOr<std::span<std::byte>> AllocateSlab(int64_t bytes) override;
  // Direct where this UCX has CUDA (its modules load only where the driver's libraries are).
  absl::Status AdoptSlab(const Slab& memory, int64_t bytes, std::shared_ptr<void> owner) override;
  std::string Descriptor() const override { return descriptor_; }
  // INVALID_ARGUMENT: not a descriptor; FAILED_PRECONDITION: of another UCX version; UNAVAILABLE: the peer does not
  // answer within some seconds.
  absl::StatusOr<std::unique_ptr<Link>> Connect(std::string_view peer_descriptor) override;

 private:
  UcxTransport(UcxOptions options, std::unique_ptr<UcxProgress> progress);
  absl::Status AllocateMemory(int64_t bytes);
  absl::Status RegisterMemory(const Slab& memory);
  absl::Status Publish(int64_t slab_bytes);

  const UcxOptions options_;
  std::shared_ptr<void> owner_;            // of memory_, where it was adopted
  std::unique_ptr<UcxInbox> inbox_;        // outlives the thread that reads it
  std::unique_ptr<UcxProgress> progress_;  // serves peers that write to us; each link has its own
  ucp_mem_h memory_handle_ = nullptr;
  Slab memory_;  // slab and scratch area
  int64_t slab_bytes_ = 0;
  int64_t scratch_offset_ = 0;
  std::string descriptor_;
};

}  // namespace baton
