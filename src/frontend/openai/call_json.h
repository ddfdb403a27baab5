// A tool call as models write it: one JSON object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "frontend/openai/tool_parser.h"

namespace baton {

inline constexpr std::string_view kSpace = " \t\r\n";

// Bytes at the end of `text` that may be the beginning of `tag`.
size_t CutOff(std::string_view text, std::string_view tag);

// Where strings are in JSON that comes byte by byte.
class StringScanner {
 public:
  // Whether `c`, the next byte, belongs to a string, its quotes included.
  bool Covers(char c) {
    if (!in_string_) return in_string_ = c == '"';
    if (!escaped_ && c == '"') in_string_ = false;
    escaped_ = !escaped_ && c == '\\';
    return true;
  }

 private:
  bool in_string_ = false, escaped_ = false;
};

// Finds where a JSON object ends, whatever pieces it comes in.
class ObjectScanner {
 public:
  // The index in `text` behind the object's last brace, if that has come. The first text begins with the first brace;
  // each one goes on where the last one ended.
  std::optional<size_t> Push(std::string_view text);

 private:
  int64_t depth_ = 0;
  StringScanner strings_;
};

// {"name": "...", "arguments": {...}}, or "parameters" for "arguments"; without either a call has no arguments: "{}".
// Arguments are as the model wrote them, to the byte; where they are a string with JSON in it, what is in it. Nothing:
// it is no such object, or has other members than these, "type" and "id".
std::optional<ToolCall> ReadCall(std::string_view object);

}  // namespace baton
