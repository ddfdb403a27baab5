// Reads the fields of one JSON object by name and type; what nobody asked for is refused.
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

// A field that is null counts as absent. Readers return nothing for what is absent or of another type; the first error
// is kept until Finish, so that a caller reads all its fields and then looks once.
class FieldReader {
 public:
  // `where`: what errors call the object, "" for a request's body. The object must outlive this.
  FieldReader(const Json& object, std::string where);

  const Json* Any(std::string_view name);
  const Json* Object(std::string_view name);
  const Json* Array(std::string_view name);
  const std::string* Text(std::string_view name);
  std::optional<bool> Bool(std::string_view name);
  // In [low, high].
  std::optional<int64_t> Integer(std::string_view name, int64_t low = std::numeric_limits<int64_t>::min(),
                                 int64_t high = std::numeric_limits<int64_t>::max());
  std::optional<int32_t> Integer32(std::string_view name);
  std::optional<float> Number(std::string_view name);  // finite

  // "messages[2].role" for "role".
  std::string Path(std::string_view name) const;
  // Of the field `name`; counts unless there is an earlier error.
  void Refuse(std::string_view name, std::string_view why);
  void RefuseType(std::string_view name, std::string_view expected, const Json& got);
  void Check(const absl::Status& status);

  bool ok() const { return status_.ok(); }
  // INVALID_ARGUMENT: the first error, or the first field that no one asked for.
  absl::Status Finish();

 private:
  const Json* object_ = nullptr;  // null: it is none
  std::string where_;
  std::vector<bool> seen_;  // by member
  absl::Status status_;
};

// An element's: "stop[3]".
std::string ElementPath(std::string_view list, size_t index);
absl::Status WrongType(std::string_view path, std::string_view expected, const Json& got);
// The value of an integer in [low, high].
std::optional<int64_t> AsInteger(const Json& value, int64_t low, int64_t high);

}  // namespace baton
