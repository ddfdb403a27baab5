// A prefill worker with its service and its gRPC server, assembled from concrete parts.
#pragma once

#include <memory>
#include <string>

#include "engine/prefill/worker.h"
#include "node/measured_connector.h"
#include "node/worker_parts.h"
#include "rpc/grpc_server.h"
#include "shell/prefill_service.h"
#include "transport/guarded/connector.h"

namespace baton {

class PrefillNode {
 public:
  // Starts a worker, which serves when Start returns. With an empty `listen`, only this process can
  // reach the worker, and peers use the name `in_process_name`.
  static absl::StatusOr<std::unique_ptr<PrefillNode>> Start(const NodeParts& parts, const std::string& listen,
                                                            const std::string& in_process_name,
                                                            ChannelFactory reach_decode);
  ~PrefillNode() { Shutdown(absl::ZeroDuration()); }

  GrpcServer& server() { return *server_; }
  // Blocks if the worker hangs. Thread-safe.
  void CheckAlive() const { static_cast<void>(worker_->Load()); }
  // Refuses new requests, lets running ones finish within `grace`, fails the rest. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  explicit PrefillNode(const NodeParts& parts)
      : service_(parts.metrics, parts.model_name, parts.options.common.vllm_metrics) {}

  PrefillService service_;
  std::unique_ptr<GuardedConnector> guarded_connector_;
  std::unique_ptr<MeasuredConnector> connector_;
  std::unique_ptr<StagingStore> staging_;
  std::unique_ptr<PrefillWorker> worker_;
  std::unique_ptr<GrpcServer> server_;
};

}  // namespace baton
