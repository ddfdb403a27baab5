// Logs go to stderr, one line each; prompts, texts and tokens are never logged.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "spdlog/spdlog.h"

namespace baton {

// `level`: trace, debug, info, warn, error or off. `program` starts each line.
absl::Status InitLogging(const std::string& program, const std::string& level);

}  // namespace baton
