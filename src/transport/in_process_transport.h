// Blocks move by memcpy between slabs of one process: `baton serve`, and tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "transport/transport.h"

namespace baton {

// The slabs that can be reached, by descriptor. One for each process; shared by its transports.
class InProcessNetwork {
 public:
  // Zeroed memory, unmapped when the last who copies into it lets go.
  class Slab {
   public:
    static absl::StatusOr<std::shared_ptr<Slab>> Map(int64_t bytes);
    explicit Slab(std::span<std::byte> memory) : memory_(memory) {}
    ~Slab();
    std::span<std::byte> memory() const { return memory_; }

   private:
    std::span<std::byte> memory_;
  };

  std::string Add(std::weak_ptr<Slab> slab);  // its descriptor
  void Remove(const std::string& descriptor);
  std::shared_ptr<Slab> Find(std::string_view descriptor) const;  // null: unknown, or its transport is gone

 private:
  mutable std::mutex mutex_;  // of all below
  int64_t added_ = 0;
  std::map<std::string, std::weak_ptr<Slab>, std::less<>> slabs_;
};

// Each link copies on a thread of its own.
class InProcessTransport final : public Transport {
 public:
  explicit InProcessTransport(std::shared_ptr<InProcessNetwork> network) : network_(std::move(network)) {}
  ~InProcessTransport() override;

  absl::StatusOr<std::span<std::byte>> AllocateSlab(int64_t bytes) override;
  std::string Descriptor() const override { return descriptor_; }
  absl::StatusOr<std::unique_ptr<Link>> Connect(std::string_view peer_descriptor) override;

 private:
  std::shared_ptr<InProcessNetwork> network_;
  std::shared_ptr<InProcessNetwork::Slab> slab_;
  std::string descriptor_;
};

}  // namespace baton
