// The transport between slabs of one process, for `baton serve` and tests. It copies the blocks.
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

// The slabs of the process, by descriptor. All transports of a process share one network.
// Thread-safe.
class InProcessNetwork {
 public:
  // The memory of a slab. It is either zeroed host memory that this object maps, or memory of
  // another owner. A connection shares ownership during a copy, so that the memory outlives the
  // copy.
  class Memory {
   public:
    static absl::StatusOr<std::shared_ptr<Memory>> Map(int64_t bytes);
    Memory(const Slab& slab, std::shared_ptr<void> owner) : slab_(slab), owner_(std::move(owner)) {}
    ~Memory();
    const Slab& slab() const { return slab_; }

   private:
    const Slab slab_;
    const std::shared_ptr<void> owner_;  // null if Map mapped the memory
  };

  // Adds a slab and returns its descriptor.
  std::string Add(std::weak_ptr<Memory> memory);
  void Remove(const std::string& descriptor);
  // Returns null if the descriptor is unknown or its transport is gone.
  std::shared_ptr<Memory> Find(std::string_view descriptor) const;

 private:
  mutable std::mutex mutex_;  // guards the members below
  int64_t added_ = 0;
  std::map<std::string, std::weak_ptr<Memory>, std::less<>> slabs_;
};

// Each connection copies on its own thread.
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
