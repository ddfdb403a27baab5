// TOML files that operators write.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "toml++/toml.h"

namespace baton {

// NOT_FOUND, or INVALID_ARGUMENT with file and line.
absl::StatusOr<toml::table> ReadTomlFile(const std::string& path);

// "FILE:LINE", for messages.
std::string PlaceOf(const std::string& path, const toml::node& node);

}  // namespace baton
