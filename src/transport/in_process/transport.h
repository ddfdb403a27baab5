// Blocks are copied between slabs of one process: `baton serve`, and tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "transport/transport.h"

namespace baton {

// The slabs that can be reached, by descriptor. One for each process; shared by its transports.
class InProcessNetwork {
 public:
  // A slab: zeroed memory of the host, unmapped when the last who copies into it lets go, or another's memory.
  class Memory {
   public:
    static absl::StatusOr<std::shared_ptr<Memory>> Map(int64_t bytes);
    Memory(const Slab& slab, std::shared_ptr<void> owner) : slab_(slab), owner_(std::move(owner)) {}
    ~Memory();
    const Slab& slab() const { return slab_; }

   private:
    const Slab slab_;
    const std::shared_ptr<void> owner_;  // null: mapped here
  };

  std::string Add(std::weak_ptr<Memory> memory);  // its descriptor
  void Remove(const std::string& descriptor);
  std::shared_ptr<Memory> Find(std::string_view descriptor) const;  // null: unknown, or its transport is gone

 private:
  mutable std::mutex mutex_;  // of all below
  int64_t added_ = 0;
  std::map<std::string, std::weak_ptr<Memory>, std::less<>> slabs_;
};

// Each link copies on a thread of its own.
class InProcessTransport final : public Transport {
 public:
  explicit InProcessTransport(std::shared_ptr<InProcessNetwork> network) : network_(std::move(network)) {}
  ~InProcessTransport() override;

  absl::StatusOr<std::span<std::byte>> AllocateSlab(int64_t bytes) override;
  absl::Status AdoptSlab(const Slab& memory, int64_t bytes, std::shared_ptr<void> owner) override;
  std::string Descriptor() const override { return descriptor_; }
  absl::StatusOr<std::unique_ptr<Link>> Connect(std::string_view peer_descriptor) override;

 private:
  std::shared_ptr<InProcessNetwork> network_;
  std::shared_ptr<InProcessNetwork::Memory> memory_;
  std::string descriptor_;
};

}  // namespace baton
