// Typed access to the fields of tokenizer files. An INVALID_ARGUMENT error names the field, the
// expected type and the actual type.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace baton {

// Returns a boolean, or `absent` if the field is missing or null.
absl::StatusOr<bool> Flag(const nlohmann::json& object, const std::string& field, bool absent);
absl::StatusOr<std::string> Text(const nlohmann::json& object, const std::string& field);
// Returns a text, or an empty text if the field is missing or null.
absl::StatusOr<std::string> OptionalText(const nlohmann::json& object, const std::string& field);
absl::StatusOr<int64_t> Integer(const nlohmann::json& object, const std::string& field);
// Returns the elements of an array, or no elements if the field is missing or null.
absl::StatusOr<nlohmann::json::array_t> OptionalArray(const nlohmann::json& object, const std::string& field);

// Returns `status` with "WHERE: " in front of its message. An OK status stays as it is.
absl::Status At(const std::string& where, const absl::Status& status);

}  // namespace baton
