// Parser for JSON from untrusted clients. Bounds the depth and the number of values while parsing.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace baton {

// Keeps members in the order of the text. Chat templates show a tool's schema to the model in the
// order that the client sent.
using Json = nlohmann::ordered_json;

inline constexpr size_t kMaxJsonDepth = 64;
// Limit of members per object. A lookup in an object scans its members from front to back.
inline constexpr size_t kMaxJsonMembers = 4096;
// Limit of values per text. A parsed value takes up to 30 times the memory of its text.
inline constexpr size_t kMaxJsonValues = size_t{1} << 21;

// Parses `text`, which must hold exactly one JSON value. Never recurses and never throws. `field`
// names the value in errors, and is "" for the body of a request. Returns INVALID_ARGUMENT for each
// of these:
// - The text is not JSON or not UTF-8. The message names the byte.
// - The value exceeds one of the limits above.
// - An object has two members of one name.
// - An integer exceeds 64 bits, or a fraction exceeds the range of double.
// The message begins with the path of the value at fault, "FIELD.messages[0].content: ...", or with
// that of a value around it. It begins with "body: " if this path is empty.
absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view field);

// Parses the body of an HTTP request, which must be a JSON object. Returns the errors of ParseJson,
// and INVALID_ARGUMENT for another kind of value.
absl::StatusOr<Json> ParseJsonBody(std::string_view body);

// Returns the size of value.dump() in bytes, without building the text. REQUIRES: the value is no
// deeper than kMaxJsonDepth.
size_t JsonBytes(const Json& value);

// Describes a value for an error message: "an object", "a list of 3", a short string in quotes, or
// the number itself.
std::string ShowJson(const Json& value);

}  // namespace baton
