#include "base/json/json_file.h"

#include <string_view>

#include "base/mapped_file.h"
#include "base/status.h"

namespace baton {

absl::StatusOr<nlohmann::json> ReadJsonObject(const std::string& path, int64_t max_bytes) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  const auto size = static_cast<int64_t>(file.bytes().size());
  if (size > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected at most ", max_bytes, " bytes, got ", size));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  try {
    nlohmann::json document = nlohmann::json::parse(text);
    if (document.is_object()) return document;
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a JSON object, got ", document.type_name()));
  } catch (const nlohmann::json::exception& error) {
    // nlohmann quotes the last input that it read, escaped and without a limit of length.
    return absl::InvalidArgumentError(absl::StrCat(path, ": not JSON: ", std::string(error.what()).substr(0, 200)));
  }
}

}  // namespace baton
