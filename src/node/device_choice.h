// Which devices compute a model.
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

// Of `kinds`, the one that --device names. For "auto" the first whose devices are present and can run the model; that
// this is the CPU is logged, with the reason: a warning where there is another device that cannot be used, or where
// several ranks were wanted. UNAVAILABLE: this build has no such kind. Otherwise as Device::Find, of the last kind that
// was tried.
absl::StatusOr<DeviceChoice> ChooseDevices(const WorkerOptions& options, const ModelConfig& config,
                                           std::span<const Device* const> kinds);

}  // namespace baton
