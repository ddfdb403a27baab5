#include "base/toml_file.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "base/strings.h"

namespace baton {
namespace {

constexpr size_t kMostShown = 60;

std::string LineOf(const std::string& path, size_t number) {
  std::ifstream file(path);
  std::string line;
  for (size_t i = 0; i < number; ++i) std::getline(file, line);
  return line;
}

// Returns the end of an error message. `parsed` is the line up to the position of the error. The
// rest is not shown, because it may be an API key.
std::string Hint(std::string_view error, absl::string_view parsed) {
  std::string hint =
      StrCat(", after '", absl::CHexEscape(absl::StripAsciiWhitespace(parsed).substr(0, kMostShown)), "'");
  const size_t value = parsed.find('=');
  if (value == absl::string_view::npos || error.find("redefine") != error.npos) return hint;
  if (parsed.find_first_of("\"'", value) == absl::string_view::npos) {
    hint += ". Texts need quotes, as in name = \"text\"";
  } else if (error.find("control characters") != error.npos) {
    hint += ". The closing quote is missing";
  }
  return hint;
}

}  // namespace

absl::StatusOr<toml::table> ReadTomlFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be read"));
  if (std::filesystem::is_directory(path)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a directory, expected a TOML file"));
  }
  try {
    return toml::parse(file, path);
  } catch (const toml::parse_error& error) {
    const auto [line, column] = error.source().begin;
    return absl::InvalidArgumentError(StrCat(path, ":", line, ": ", error.description(),
                                             Hint(error.description(), LineOf(path, line).substr(0, column))));
  }
}

std::string PlaceOf(const std::string& path, const toml::node& node) {
  return StrCat(path, ":", node.source().begin.line);
}

}  // namespace baton
