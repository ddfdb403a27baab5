// Reader of JSON files from a model directory.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace baton {

// Parses the JSON object in the file `path`. Returns INVALID_ARGUMENT if the file is larger than
// `max_bytes`, is not JSON or is not an object. The error names the file and the position. Returns
// the errors of MappedFile::Open too. The size is checked before parsing, because a parsed document
// takes up to about 80 times its text.
absl::StatusOr<nlohmann::json> ReadJsonObject(const std::string& path, int64_t max_bytes);

}  // namespace baton
