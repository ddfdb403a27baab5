// Registers a worker where routers look for it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "membership/etcd_registration.h"
#include "node/options.h"

namespace baton {

// Registers a worker that listens on `listening` as long as the result lives. Null: the options do not ask for it.
// INVALID_ARGUMENT: as AdvertisedAddress.
absl::StatusOr<std::unique_ptr<EtcdRegistration>> Register(const WorkerOptions& options, const std::string& listening,
                                                           Metrics& metrics);

}  // namespace baton
