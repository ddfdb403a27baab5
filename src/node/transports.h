// The choice of the transport for KV blocks.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "node/device.h"
#include "node/options.h"
#include "transport/in_process/transport.h"

namespace baton {

Transports MakeInProcessTransports(const WorkerOptions& options, const std::shared_ptr<InProcessNetwork>& network);

// Makes transports that move blocks to workers of other processes. With --guard-kv, blocks move
// over gRPC, and only this process can access the slabs. UCX is then not used, because a peer could
// write to any address of a slab.
absl::StatusOr<Transports> MakeTransports(const WorkerOptions& options);

}  // namespace baton
