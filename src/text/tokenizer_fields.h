// Typed access to the fields of tokenizer files. Errors are INVALID_ARGUMENT and name field, expected and got.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace baton {

// A boolean; `absent` where the field is missing or null.
absl::StatusOr<bool> Flag(const nlohmann::json& object, const std::string& field, bool absent);
absl::StatusOr<std::string> Text(const nlohmann::json& object, const std::string& field);
// A text that may be missing, null or empty; empty then.
absl::StatusOr<std::string> OptionalText(const nlohmann::json& object, const std::string& field);
absl::StatusOr<int64_t> Integer(const nlohmann::json& object, const std::string& field);
// The elements of an array, or of nothing if the field is missing or null.
absl::StatusOr<nlohmann::json::array_t> OptionalArray(const nlohmann::json& object, const std::string& field);

// `status` with `where` in front of its message.
absl::Status At(const std::string& where, const absl::Status& status);

}  // namespace baton
