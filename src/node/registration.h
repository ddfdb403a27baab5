// Registration of a worker in etcd, where routers look it up.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "membership/etcd_registration.h"
#include "node/options.h"
#include "node/program.h"
#include "node/shutdown.h"

namespace baton {

// Registers a worker that listens on `listening`, until the result is destroyed. Returns null if
// the options request no registration. Returns the errors of AdvertisedAddress.
absl::StatusOr<std::unique_ptr<EtcdRegistration>> Register(const WorkerOptions& options, const std::string& listening,
                                                           Metrics& metrics);

// Registers a worker's node (PrefillNode or DecodeNode) and runs it until a signal. At shutdown,
// withdraws the registration first, so that routers send no further requests. Returns the errors of
// AdvertisedAddress.
template <typename Node>
absl::Status RunWorkerNode(Node& node, const WorkerOptions& options, Metrics& metrics, ShutdownSignal& signal) {
  ASSIGN_OR_RETURN(const auto registration, Register(options, node.server().address(), metrics));
  const auto shutdown = [&, grace = absl::Seconds(options.common.grace_seconds)] {
    if (registration != nullptr) registration->Withdraw(grace);
    node.Shutdown(grace);
  };
  RunUntilSignal(signal, {node.server().address(), [&] { node.CheckAlive(); }, shutdown, nullptr});
  return absl::OkStatus();
}

}  // namespace baton
