// Reads the fields of one JSON object by name and type. Other fields are refused.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/json/json_body.h"

namespace baton {

// A null field counts as absent. Readers return nothing for a field that is absent or of another
// type. The first error is kept until Finish, so that a caller can read all fields and then check
// once. REQUIRES: the names that readers get outlive this object.
class FieldReader {
 public:
  // `where` is the object's name in errors, and "" for a request's body. The object must outlive
  // this reader.
  FieldReader(const Json& object, std::string where);

  const Json* Any(std::string_view name);
  // As Any, for a field that the caller refuses. Errors about unknown fields do not suggest it.
  const Json* Refused(std::string_view name);
  const Json* Object(std::string_view name);
  const Json* Array(std::string_view name);
  const std::string* Text(std::string_view name);
  std::optional<bool> Bool(std::string_view name);
  // An integer in [low, high]. An error names the range if one is given.
  std::optional<int64_t> Integer(std::string_view name, int64_t low = std::numeric_limits<int64_t>::min(),
                                 int64_t high = std::numeric_limits<int64_t>::max());
  std::optional<int32_t> Integer32(std::string_view name, int32_t low,
                                   int32_t high = std::numeric_limits<int32_t>::max());
  std::optional<double> Number(std::string_view name);

  // The name of a field in errors: "messages[2].role" for "role".
  std::string Path(std::string_view name) const;
  // Refuses the field `name`. Has no effect after an earlier error.
  void Refuse(std::string_view name, std::string_view why);
  void RefuseType(std::string_view name, std::string_view expected, const Json& got);
  void Check(const absl::Status& status);

  bool ok() const { return status_.ok(); }
  // Returns the first error, or an error that names the first field that was not read, and the
  // nearest name that was, apart from those of Refused. INVALID_ARGUMENT.
  absl::Status Finish();

 private:
  const Json* object_ = nullptr;  // null if the value is not an object
  std::string where_;
  std::vector<bool> seen_;               // by index of the member
  std::vector<std::string_view> names_;  // that readers got
  absl::Status status_;
};

// The name of an element in errors: "stop[3]".
std::string ElementPath(std::string_view list, size_t index);
absl::Status WrongType(std::string_view path, std::string_view expected, const Json& got);
// The value as an integer in [low, high], or nothing. 16.0 is an integer, as some clients send it.
std::optional<int64_t> AsInteger(const Json& value, int64_t low, int64_t high);

}  // namespace baton
