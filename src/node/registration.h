// Registers a worker where routers look for it.
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

// Registers a worker that listens on `listening` as long as the result lives. Null: the options do not ask for it.
// INVALID_ARGUMENT: as AdvertisedAddress.
absl::StatusOr<std::unique_ptr<EtcdRegistration>> Register(const WorkerOptions& options, const std::string& listening,
                                                           Metrics& metrics);

// Registers the node of a worker, a PrefillNode or a DecodeNode, and runs it until the signal. At the end the
// registration goes first, so that routers send the worker nothing more. INVALID_ARGUMENT: as AdvertisedAddress.
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
