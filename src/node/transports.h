// The choice of transport for KV blocks.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "node/device.h"
#include "node/options.h"
#include "transport/in_process/transport.h"

namespace baton {

Transports MakeInProcessTransports(const WorkerOptions& options, const std::shared_ptr<InProcessNetwork>& network);

// The transports by which blocks reach workers of other processes. With --guard-kv blocks move by gRPC, so the slabs
// are visible to this process alone, and UCX, by which a peer could write to any address, is not used.
absl::StatusOr<Transports> MakeTransports(const WorkerOptions& options);

}  // namespace baton
