// The choice of the devices that compute a model.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "model/config.h"
#include "node/device.h"
#include "node/options.h"

namespace baton {

struct DeviceChoice {
  const Device* kind = nullptr;
  std::vector<int> numbers;  // of each rank's device
};

// Chooses the kind in `kinds` that --device names. For "auto", chooses the first kind whose devices
// exist and can run the model. If "auto" chooses the CPU, logs the reason. The log line is a
// warning if another device exists but is unusable, or if --tensor-parallel is above 1. Returns
// UNAVAILABLE if this build lacks the kind. Otherwise returns the error of Device::Find for the
// kind that was tried last.
absl::StatusOr<DeviceChoice> ChooseDevices(const WorkerOptions& options, const ModelConfig& config,
                                           std::span<const Device* const> kinds);

}  // namespace baton
