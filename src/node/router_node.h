// A router with its models, its gRPC and HTTP front ends for clients, and its health checks.
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
  // Starts a router, which listens when Start returns. Workers may still be missing, which
  // grpc.health.v1 reports. `clock` and `metrics` must outlive the node. Returns UNAVAILABLE if an
  // address cannot be bound.
  static absl::StatusOr<std::unique_ptr<RouterNode>> Start(const RouterOptions& options,
                                                           std::vector<ServedModel> models,
                                                           const ChannelFactory& channels, const Clock& clock,
                                                           Metrics& metrics);
  ~RouterNode() { Shutdown(absl::ZeroDuration()); }

  GrpcServer& server() { return *server_; }
  // Returns null if the options disable HTTP.
  const HttpServer* http() const { return http_.get(); }
  const Router& router() const { return router_; }
  // Reads the file of keys again and logs the result. A faulty file changes nothing.
  void ReloadKeys();
  // Replaces the workers by those in `options` and logs the result. Changes nothing if DNS or etcd
  // names workers, either in `options` or in the options at the start.
  void ReloadWorkers(const absl::StatusOr<RouterOptions>& options);
  // Blocks if the router hangs. Thread-safe.
  void CheckAlive() const { static_cast<void>(router_.Decoders()); }
  // Refuses new calls, lets running calls finish within `grace`, cancels the rest. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  RouterNode(const RouterOptions& options, std::vector<ServedModel> models, ModelNames names,
             std::unique_ptr<KeyRing> keys, const ChannelFactory& channels, const Clock& clock, Metrics& metrics);
  absl::Status StartHttp(const RouterOptions& options, Metrics& metrics);
  void RenewCertificate();
  absl::Status StartMembership(const RouterOptions& options, Metrics& metrics);
  void CheckHealth();
  // Returns why no model can be served, or an empty string if a model can.
  std::string Obstacle() const;

  ServedModels models_;
  std::unique_ptr<KeyRing> keys_;
  Callers callers_;
  // Declared after callers_, because its destructor ends live requests and reports them to
  // callers_.
  Router router_;
  ClientAdmission admission_;
  InferenceService service_;
  ChatLog chat_log_;
  OpenAiGateway gateway_;
  std::unique_ptr<GrpcServer> server_;
  // Certificate for HTTP. Null if HTTP is not encrypted.
  std::shared_ptr<TlsCertificate> certificate_;
  std::unique_ptr<HttpServer> http_;
  // The result of the last check, if any. Used by the thread of health_ only.
  std::optional<std::string> obstacle_;
  std::optional<PeriodicTask> health_, renewal_;
  // Null if all workers are static addresses.
  std::unique_ptr<LiveMembership> membership_;
};

// Returns the function that a program calls at SIGHUP. It reads the keys again, and with
// `reload_options` the workers too. Returns null if there is nothing to read again.
std::function<void()> ReloadOf(const RouterOptions& options, RouterNode& node, ReloadOptions reload_options = nullptr);

}  // namespace baton
