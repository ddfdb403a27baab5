#include "node/device_choice.h"

#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"

namespace baton {

absl::StatusOr<DeviceChoice> ChooseDevices(const WorkerOptions& options, const ModelConfig& config,
                                           std::span<const Device* const> kinds) {
  const std::string wanted = options.device.substr(0, options.device.find(':'));
  const bool any = wanted == "auto";
  absl::Status missing =
      absl::UnavailableError(absl::StrCat("this build has no ", any ? "CUDA" : absl::AsciiStrToUpper(wanted),
                                          " (configure with the CUDA toolkit and -DBATON_CUDA=ON)"));
  for (const Device* kind : kinds) {
    if (!any && wanted != kind->name()) continue;
    absl::StatusOr<std::vector<int>> found = kind->Find(options, config);
    if (!found.ok()) {
      missing = found.status();
      continue;
    }
    if (any && !kind->is_accelerator()) {
      // A machine without a GPU is normal. A GPU that exists but is not used deserves a warning.
      const bool usual = absl::IsUnavailable(missing) && options.tensor_parallel == 1;
      const auto level = usual ? spdlog::level::info : spdlog::level::warn;
      spdlog::log(level, "computing on the CPU: {}", std::string(missing.message()));
    }
    return DeviceChoice{kind, *std::move(found)};
  }
  return missing;
}

}  // namespace baton
