// The top level of a tool's schema, with which the arguments of a call are compared after the
// answer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_body.h"

namespace baton {

// Takes from a JSON Schema of an object: the required members, the types of members, and whether
// other members are allowed. Deeper levels and other keywords are ignored.
class ArgumentSchema {
 public:
  // `parameters` is any JSON value. One without these keywords accepts each object, and so does one
  // with over kMostMembers required or typed members.
  explicit ArgumentSchema(const Json& parameters);
  // Returns whether a text is a JSON object with these members.
  bool Accepts(std::string_view arguments) const;

 private:
  // Bounds the memory of a schema, which lives as long as the answer.
  static constexpr size_t kMostMembers = 128;
  using Types = uint8_t;  // a set of JSON types
  static Types TypesOf(const Json& type);
  bool AcceptsMember(const std::string& name, const Json& value) const;

  std::vector<std::string> required_;
  std::map<std::string, Types, std::less<>> members_;
  bool closed_ = false;
};

// The numbers of calls of tools with `strict: true`.
struct StrictCalls {
  int64_t matched = 0, mismatched = 0;
};

}  // namespace baton
