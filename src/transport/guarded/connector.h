// The connector to decode workers that guard their blocks (`--guard-kv`).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "kv/block_layout.h"
#include "kv/slab.h"
#include "rpc/grpc_server.h"
#include "transport/transport.h"

namespace baton {

// Returns the descriptor of a worker that guards its blocks: its address and the size of its
// memory.
std::string GuardedDescriptor(const WorkerAddress& address, int64_t slab_bytes);

struct GuardedConnectorOptions {
  Slab source;  // the slab of this worker; its memory must outlive the connections
  KvLayout layout{};
  ChannelFactory reach{};
  bool guarded_only = false;  // refuse to push to workers that do not guard their blocks
};

// Connects to workers that guard their blocks. Passes all other descriptors to `unguarded`,
// which must outlive this object.
class GuardedConnector final : public Connector {
 public:
  GuardedConnector(Connector& unguarded, GuardedConnectorOptions options)
      : unguarded_(unguarded), options_(std::move(options)) {}
  std::string Descriptor() const override { return unguarded_.Descriptor(); }
  // Fails with UNAVAILABLE if a worker that guards its blocks is not reached within some seconds.
  // For a worker that does not guard its blocks, fails as `unguarded` does, or with
  // FAILED_PRECONDITION if guarded_only is set.
  absl::StatusOr<std::unique_ptr<Link>> Connect(std::string_view peer_descriptor) override;

 private:
  Connector& unguarded_;
  const GuardedConnectorOptions options_;
};

}  // namespace baton
