#include "node/transports.h"

#include "base/logging.h"
#include "base/status.h"
#include "transport/ucx/transport.h"

namespace baton {

Transports MakeInProcessTransports(const WorkerOptions& options, const std::shared_ptr<InProcessNetwork>& network) {
  Transports transports;
  for (int i = 0; i < options.tensor_parallel; ++i) transports.push_back(std::make_unique<InProcessTransport>(network));
  return transports;
}

absl::StatusOr<Transports> MakeTransports(const WorkerOptions& options) {
  if (options.guard_kv) {
    spdlog::info("KV blocks move by gRPC, with the write keys of reservations");
    if (options.common.peer.empty()) {
      spdlog::warn(
          "--guard-kv without --peer-ca: any process that can call a decode worker can reserve blocks, write them with "
          "their write key and commit any content to the cache");
    }
    return MakeInProcessTransports(options, std::make_shared<InProcessNetwork>());
  }
  Transports transports;
  for (int rank = 0; rank < options.tensor_parallel; ++rank) {
    ASSIGN_OR_RETURN(auto transport, UcxTransport::Create({.tcp_devices = options.kv_devices}));
    if (rank == 0) spdlog::info("KV blocks move by {}", transport->Description());
    transports.push_back(std::move(transport));
  }
  return transports;
}

}  // namespace baton
