// A router that serves: models, router, its fronts for clients (gRPC and HTTP), health.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/periodic_task.h"
#include "frontend/gateway/gateway.h"
#include "frontend/grpc/inference_service.h"
#include "frontend/http/http_server.h"
#include "membership/live_membership.h"
#include "node/options.h"
#include "rpc/grpc_server.h"

namespace baton {

class RouterNode {
 public:
  // Listens when it returns, whether or not workers are there; health tells that. Clock and metrics must outlive it.
  // UNAVAILABLE: an address cannot be bound.
  static absl::StatusOr<std::unique_ptr<RouterNode>> Start(const RouterOptions& options,
                                                           std::vector<ServedModel> models,
                                                           const ChannelFactory& channels, const Clock& clock,
                                                           Metrics& metrics);
  ~RouterNode() { Shutdown(absl::ZeroDuration()); }

  GrpcServer& server() { return *server_; }
  const HttpServer* http() const { return http_.get(); }  // null: the options want none
  const Router& router() const { return router_; }
  // Reads the file of keys again, and logs what became of it.
  void ReloadKeys();
  // Goes on with the workers that these options name, unless a name is among them or was: the logs say what became of
  // it.
  void ReloadWorkers(const absl::StatusOr<RouterOptions>& options);
  // Returns unless the router hangs. Thread-safe.
  void CheckAlive() const { static_cast<void>(router_.Decoders()); }
  // Refuses new calls, gives running ones `grace` to end, cancels the rest. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  RouterNode(const RouterOptions& options, std::vector<ServedModel> models, std::unique_ptr<KeyRing> keys,
             const ChannelFactory& channels, const Clock& clock, Metrics& metrics);
  absl::Status StartHttp(const RouterOptions& options, Metrics& metrics);
  void RenewCertificate();
  absl::Status StartMembership(const RouterOptions& options, Metrics& metrics);
  void CheckHealth();

  ServedModels models_;
  std::unique_ptr<KeyRing> keys_;
  Callers callers_;
  Router router_;  // ends what is live, and tells callers_
  ClientAdmission admission_;
  InferenceService service_;
  OpenAiGateway gateway_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<TlsCertificate> certificate_;  // for HTTP; null: it is not encrypted
  std::unique_ptr<HttpServer> http_;
  bool serving_ = false;  // of the health thread
  std::optional<PeriodicTask> health_, renewal_;
  std::unique_ptr<LiveMembership> membership_;  // null where all workers are named by address
};

// What a program does at SIGHUP: reads the keys again, if it has any, and the workers, if they may be others by now.
std::function<void()> ReloadOf(const RouterOptions& options, RouterNode& node, ReadAgain read_again = nullptr);

}  // namespace baton
