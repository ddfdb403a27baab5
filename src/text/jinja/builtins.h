// The functions, filters, tests and methods of chat templates. Tables list them, and no others are
// implemented.
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

// The evaluated arguments of a call. For filters, tests and methods, the input is separate.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // Returns the i-th positional argument, or else the argument of this name, or else undefined.
  Value Get(size_t i, std::string_view name) const;
};

bool IsFunction(std::string_view name);
bool IsFilter(std::string_view name);
bool IsTest(std::string_view name);
bool IsMethod(std::string_view name);

// These fail with INVALID_ARGUMENT if a value is not valid, and the message states the reason.
// REQUIRES: the name exists (IsFunction and so on).
absl::StatusOr<Value> CallFunction(std::string_view name, const Arguments& arguments, absl::Time now);
absl::StatusOr<Value> ApplyFilter(std::string_view name, const Value& input, const Arguments& arguments);
absl::StatusOr<bool> ApplyTest(std::string_view name, const Value& input, const Arguments& arguments);
absl::StatusOr<Value> CallMethod(std::string_view name, const Value& object, const Arguments& arguments);

// Returns the items over which a for loop, join and list iterate: items of a list, keys of a dict,
// characters of a string, and none for undefined.
absl::StatusOr<List> Items(const Value& value);
// Returns the value of `item in container`.
absl::StatusOr<bool> Contains(const Value& container, const Value& item);

}  // namespace baton::jinja
