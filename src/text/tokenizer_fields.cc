#include "text/tokenizer_fields.h"

#include "base/status.h"

namespace baton {
namespace {

using nlohmann::json;

// Returns JSON null if there is no such field, or if `object` is not an object.
const json& Find(const json& object, const std::string& field) {
  static const json none;
  const auto found = object.find(field);
  return found == object.end() ? none : *found;
}

absl::Status WrongType(const std::string& field, const char* expected, const json& got) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": expected ", expected, ", got ", got.type_name()));
}

}  // namespace

absl::StatusOr<bool> Flag(const json& object, const std::string& field, bool absent) {
  const json& value = Find(object, field);
  if (value.is_null()) return absent;
  if (!value.is_boolean()) return WrongType(field, "true or false", value);
  return value.get<bool>();
}

absl::StatusOr<std::string> Text(const json& object, const std::string& field) {
  const json& value = Find(object, field);
  if (!value.is_string()) return WrongType(field, "a string", value);
  return value.get<std::string>();
}

absl::StatusOr<std::string> OptionalText(const json& object, const std::string& field) {
  if (Find(object, field).is_null()) return std::string();
  return Text(object, field);
}

absl::StatusOr<int64_t> Integer(const json& object, const std::string& field) {
  const json& value = Find(object, field);
  if (!value.is_number_integer()) return WrongType(field, "an integer", value);
  return value.get<int64_t>();
}

absl::StatusOr<json::array_t> OptionalArray(const json& object, const std::string& field) {
  const json& value = Find(object, field);
  if (value.is_null()) return json::array_t();
  if (!value.is_array()) return WrongType(field, "an array", value);
  return value.get<json::array_t>();
}

absl::Status At(const std::string& where, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

}  // namespace baton
