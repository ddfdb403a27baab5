// Functions, filters, tests and methods that chat templates use, as tables: what is not in them is not implemented.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "text/jinja/value.h"

namespace baton::jinja {

// Evaluated arguments of a call. For filters, tests and methods the input stands apart.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The i-th positional argument or the one of that name; undefined if neither is there.
  Value Get(size_t i, std::string_view name) const;
};

bool IsFunction(std::string_view name);
bool IsFilter(std::string_view name);
bool IsTest(std::string_view name);
bool IsMethod(std::string_view name);

// INVALID_ARGUMENT says what was wrong with the values. The caller knows that the name exists.
absl::StatusOr<Value> CallFunction(std::string_view name, const Arguments& arguments, absl::Time now);
absl::StatusOr<Value> ApplyFilter(std::string_view name, const Value& input, const Arguments& arguments);
absl::StatusOr<bool> ApplyTest(std::string_view name, const Value& input, const Arguments& arguments);
absl::StatusOr<Value> CallMethod(std::string_view name, const Value& object, const Arguments& arguments);

// What a for loop, "in", join and list see: items of a list, keys of a dict, characters of a string; nothing of
// undefined.
absl::StatusOr<List> Items(const Value& value);
absl::StatusOr<bool> Contains(const Value& container, const Value& item);

}  // namespace baton::jinja
