#include "node/registration.h"

#include <chrono>
#include <random>

#include "base/status.h"
#include "membership/worker_names.h"

namespace baton {

absl::StatusOr<std::unique_ptr<EtcdRegistration>> Register(const WorkerOptions& options, const std::string& listening,
                                                           Metrics& metrics) {
  if (options.register_under.empty()) return nullptr;
  ASSIGN_OR_RETURN(const WorkerName name, ParseWorkerName(options.register_under));
  ASSIGN_OR_RETURN(const WorkerAddress address, AdvertisedAddress(options, listening));
  return std::make_unique<EtcdRegistration>(options.common.etcd, name.name, address,
                                            std::chrono::seconds(options.lease_seconds), std::random_device()(),
                                            metrics);
}

}  // namespace baton
