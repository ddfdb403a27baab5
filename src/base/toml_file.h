// Reader of TOML files, such as configuration that operators write.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "toml++/toml.h"

namespace baton {

// Returns NOT_FOUND if the file cannot be opened. Returns INVALID_ARGUMENT for a directory, or for
// malformed TOML with "FILE:LINE".
absl::StatusOr<toml::table> ReadTomlFile(const std::string& path);

// Returns "FILE:LINE" of `node`, for error messages.
std::string PlaceOf(const std::string& path, const toml::node& node);

}  // namespace baton
