// Tables of the names that users give to values of an enum, which are read once, where a name
// enters.
#pragma once

#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/strings.h"

namespace baton {

// A table is an array of rows with `name` and `value`, or of rows derived from this.
template <typename T>
struct NamedValue {
  std::string_view name;
  T value;
};

// All names of a table, in its order.
template <typename Table>
std::vector<std::string> NamesIn(const Table& table) {
  std::vector<std::string> names;
  for (const auto& row : table) names.emplace_back(row.name);
  return names;
}

// The value with this name. INVALID_ARGUMENT, which begins with `what` and lists the names: the
// table has no such name.
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
