// JSON from outside: bounded in depth and number of values before anything else looks at it.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace baton {

// Members in the order in which they were written: chat templates show a tool's schema to the model as it was sent.
using Json = nlohmann::ordered_json;

inline constexpr size_t kMaxJsonDepth = 64;
inline constexpr size_t kMaxJsonMembers = 4096;            // of one object, which is searched from front to back
inline constexpr size_t kMaxJsonValues = size_t{1} << 21;  // a parsed value takes up to 30 times its text

// One value and nothing behind it. INVALID_ARGUMENT: "FIELD: ..." with the byte where the text is no JSON or not UTF-8,
// is too deep or too large, names a member twice, or has a number beyond 64 bits (for fractions: beyond double).
// Never recurses, nor throws.
absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view field);

// Of an HTTP request: an object. INVALID_ARGUMENT as above.
absl::StatusOr<Json> ParseJsonBody(std::string_view body);

// Bytes of value.dump(), without making the text. REQUIRES: the value is no deeper than kMaxJsonDepth.
size_t JsonBytes(const Json& value);

// What an error calls a value: "a string", "an object", the number itself.
std::string ShowJson(const Json& value);

}  // namespace baton
