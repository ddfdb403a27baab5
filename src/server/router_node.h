// A router that serves: models, router, client service, health.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/grpc_server.h"
#include "server/inference_service.h"
#include "server/options.h"
#include "server/periodic_task.h"

namespace baton {

class RouterNode {
 public:
  // Listens when it returns, whether or not workers are there; health tells that. Clock and metrics must outlive it.
  static absl::StatusOr<std::unique_ptr<RouterNode>> Start(const RouterOptions& options,
                                                           std::vector<ServedModel> models,
                                                           const ChannelFactory& channels, const Clock& clock,
                                                           Metrics& metrics);
  ~RouterNode() { Shutdown(absl::ZeroDuration()); }

  GrpcServer& server() { return *server_; }
  const Router& router() const { return router_; }
  // Returns unless the router hangs. Thread-safe.
  void CheckAlive() const { static_cast<void>(router_.Decoders()); }
  // Refuses new calls, gives running ones `grace` to end, cancels the rest. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  RouterNode(const RouterOptions& options, std::vector<ServedModel> models, const ChannelFactory& channels,
             const Clock& clock, Metrics& metrics);
  void CheckHealth();

  ServedModels models_;
  Router router_;
  InferenceService service_;
  std::unique_ptr<GrpcServer> server_;
  bool serving_ = false;  // of the health thread
  std::optional<PeriodicTask> health_;
};

}  // namespace baton
