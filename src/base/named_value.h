// Tables that map names in flags, files and requests to values of an enum. Code parses a name once,
// where the name enters the process.
#pragma once

#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/strings.h"

namespace baton {

// One row. A table is an array of NamedValue or of types derived from NamedValue.
template <typename T>
struct NamedValue {
  std::string_view name;
  T value;
};

// Returns all names of `table`, in the order of its rows.
template <typename Table>
std::vector<std::string> NamesIn(const Table& table) {
  std::vector<std::string> names;
  for (const auto& row : table) names.emplace_back(row.name);
  return names;
}

// Returns the value of the row `name`. Returns INVALID_ARGUMENT if the table has no such row. The
// error begins with `what` and lists all names.
template <typename Table>
auto ValueNamed(std::string_view what, std::string_view name, const Table& table)
    -> absl::StatusOr<decltype(std::begin(table)->value)> {
  std::string names;
  for (const auto& row : table) {
    if (row.name == name) return row.value;
    const bool last = &row == &*std::prev(std::end(table));
    names = StrCat(names, names.empty() ? "" : last ? " or " : ", ", row.name);
  }
  return absl::InvalidArgumentError(StrCat(what, ": expected ", names, ", got '", name, "'"));
}

}  // namespace baton
