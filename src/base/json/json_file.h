// A JSON document from a model directory.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace baton {

// Larger files are refused before they are read: a parsed document takes up to ~80 times its text.
// INVALID_ARGUMENT names file and position of what is not an object or not JSON.
absl::StatusOr<nlohmann::json> ReadJsonObject(const std::string& path, int64_t max_bytes);

}  // namespace baton
