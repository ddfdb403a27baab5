#include "base/toml_file.h"

#include <filesystem>
#include <fstream>

#include "base/strings.h"

namespace baton {

absl::StatusOr<toml::table> ReadTomlFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  if (std::filesystem::is_directory(path)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a directory, expected a TOML file"));
  }
  try {
    return toml::parse(file, path);
  } catch (const toml::parse_error& error) {
    return absl::InvalidArgumentError(StrCat(path, ":", error.source().begin.line, ": ", error.description()));
  }
}

std::string PlaceOf(const std::string& path, const toml::node& node) {
  return StrCat(path, ":", node.source().begin.line);
}

}  // namespace baton
