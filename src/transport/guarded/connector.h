// The way to decode workers that guard their blocks (`--guard-kv`), beside that to others.
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

// What such a worker tells peers: where it is called, and nothing about its memory but its size.
std::string GuardedDescriptor(const WorkerAddress& address, int64_t slab_bytes);

struct GuardedConnectorOptions {
  Slab source;  // ours; must outlive the links
  KvLayout layout{};
  ChannelFactory reach{};
  bool guarded_only = false;  // what we push leaves by gRPC, or not at all
};

// Passes all other descriptors on to another connector, which must outlive it.
class GuardedConnector final : public Connector {
 public:
  GuardedConnector(Connector& others, GuardedConnectorOptions options)
      : others_(others), options_(std::move(options)) {}
  std::string Descriptor() const override { return others_.Descriptor(); }
  // To a worker that guards its blocks: UNAVAILABLE when it is not reached within some seconds. To another one: as
  // `others`, or FAILED_PRECONDITION.
  absl::StatusOr<std::unique_ptr<Link>> Connect(std::string_view peer_descriptor) override;

 private:
  Connector& others_;
  const GuardedConnectorOptions options_;
};

}  // namespace baton
