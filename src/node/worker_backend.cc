#include "node/worker_backend.h"

#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "backend/tensor_parallel.h"
#include "base/logging.h"
#include "base/status.h"
#include "transport/striped_connector.h"
#include "transport/ucx/transport.h"

namespace baton {

Transports MakeInProcessTransports(const WorkerOptions& options, const std::shared_ptr<InProcessNetwork>& network) {
  Transports transports;
  for (int i = 0; i < options.tensor_parallel; ++i) transports.push_back(std::make_unique<InProcessTransport>(network));
  return transports;
}

absl::StatusOr<Transports> MakeTransports(const WorkerOptions& options) {
  if (options.guard_kv) {
    spdlog::info("KV blocks move by gRPC, under keys of reservations");
    if (options.common.peer.empty()) {
      spdlog::warn(
          "--guard-kv without --peer-ca: any process that can call a decode worker can reserve blocks under a key of "
          "its "
          "own and commit any content to the cache");
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

absl::StatusOr<WorkerBackend> MakeBackend(const LoadedModel& model, const WorkerOptions& options, bool lm_head,
                                          const Transports& transports) {
  WorkerBackend made;
  ASSIGN_OR_RETURN(made.backend, model.device->MakeBackend(model, options, lm_head, transports));
  const KvLayout& layout = made.backend->kv_layout();
  const int ranks = static_cast<int>(transports.size());
  std::vector<StripedConnector::Part> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    parts.push_back({transports[static_cast<size_t>(rank)].get(), StripeOf(layout, {rank, ranks})});
  }
  made.connector = std::make_unique<StripedConnector>(layout.PlaneBytes(), std::move(parts));
  return made;
}

ParallelFor SampleOn(ThreadPool& pool) {
  return [&pool](int64_t n, absl::FunctionRef<void(int64_t)> body) {
    pool.ParallelFor(n, 1, [&](Share share) { body(share.begin); });
  };
}

}  // namespace baton
