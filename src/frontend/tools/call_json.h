// Reads a tool call that a model has written as one JSON object.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "frontend/tools/tool_parser.h"

namespace baton {

// Finds strings in JSON that arrives byte by byte.
class StringScanner {
 public:
  // Returns whether `c`, the next byte, belongs to a string, including its quotes.
  bool Covers(char c) {
    if (!in_string_) return in_string_ = c == '"';
    if (!escaped_ && c == '"') in_string_ = false;
    escaped_ = !escaped_ && c == '\\';
    return true;
  }
  bool in_string() const { return in_string_; }

 private:
  bool in_string_ = false, escaped_ = false;
};

// Reads {"name": "...", "arguments": {...}}. The arguments may also be named "parameters". A call
// without arguments has "{}". The arguments keep the bytes that the model wrote. If they are a
// string with JSON in it, the result has the string's content. Returns nothing if `object` is
// another JSON object, or has members besides these, "type" and "id".
std::optional<ToolCall> ReadCall(std::string_view object);

}  // namespace baton
