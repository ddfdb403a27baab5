// The transport over UCX: shared memory on one host, RDMA or TCP between hosts. Needs UCX 1.13 or
// later.
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
#include "transport/ucx/parked_links.h"
#include "transport/ucx/progress.h"

namespace baton {

class UcxTransport final : public Transport {
 public:
  // Fails with UNAVAILABLE if UCX finds no transport for the devices.
  static absl::StatusOr<std::unique_ptr<UcxTransport>> Create(const UcxOptions& options);
  // Leaks the slab if the thread of a closed connection hangs, because it may still read the slab.
  ~UcxTransport() override;

  // Returns DescribeUcx of this library, for logs and `--check`.
  std::string Description() const;

  absl::StatusOr<std::span<std::byte>> AllocateSlab(int64_t bytes) override;
  // UCX accesses the memory directly if it supports CUDA. Its CUDA modules load only if the
  // driver's libraries are present.
  absl::Status AdoptSlab(const Slab& memory, int64_t bytes, std::shared_ptr<void> owner) override;
  std::string Descriptor() const override { return descriptor_; }
  // Fails with INVALID_ARGUMENT if the descriptor is malformed, with FAILED_PRECONDITION if the
  // peer has another version of UCX, and with UNAVAILABLE if the peer does not answer within some
  // seconds.
  absl::StatusOr<std::unique_ptr<Link>> Connect(std::string_view peer_descriptor) override;

 private:
  UcxTransport(UcxOptions options, std::unique_ptr<UcxProgress> progress);
  absl::Status AllocateMemory(int64_t bytes);
  absl::Status RegisterMemory(const Slab& memory);
  absl::Status Publish(int64_t slab_bytes);

  const UcxOptions options_;
  std::shared_ptr<void> owner_;            // of memory_, after AdoptSlab
  std::unique_ptr<UcxInbox> inbox_;        // outlives the thread that uses it
  std::unique_ptr<UcxProgress> progress_;  // for writes of peers; each connection has its own
  ucp_mem_h memory_handle_ = nullptr;
  Slab memory_;  // slab and scratch area
  int64_t slab_bytes_ = 0;
  int64_t scratch_offset_ = 0;
  std::string descriptor_;
  // Declared last and thus destroyed first, because its connections use the members above. Links
  // use the members too, so the transport outlives its links.
  UcxParkedLinks parked_;
};

}  // namespace baton
