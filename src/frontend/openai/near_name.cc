#include "frontend/openai/near_name.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"

namespace baton {
namespace {

constexpr size_t kMaxComparedBytes = 64;  // longer names are not compared

std::string Letters(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    if (c != '_' && c != '-') letters += absl::ascii_tolower(static_cast<unsigned char>(c));
  }
  return letters;
}

// Returns the Levenshtein distance.
size_t Edits(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);  // distances of a prefix of `from` to each prefix of `to`
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[to.size()];
}

}  // namespace

std::string_view NearestName(std::string_view name, std::span<const std::string_view> known) {
  if (name.size() > kMaxComparedBytes) return "";
  const std::string letters = Letters(name);
  std::string_view nearest;
  size_t fewest = letters.size() / 3 + 1;
  for (const std::string_view candidate : known) {
    const size_t edits = Edits(letters, Letters(candidate));
    if (edits >= fewest) continue;
    fewest = edits;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace baton
