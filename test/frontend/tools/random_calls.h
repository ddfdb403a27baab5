// Random tool calls, as models write them.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "base/strings.h"
#include "frontend/tools/tool_parser.h"

namespace baton {

inline const std::string& Pick(const std::vector<std::string>& list, std::mt19937& random) {
  return list[random() % list.size()];
}

// A JSON value with nested objects, and strings with braces, escapes and Unicode.
inline std::string RandomJson(int depth, std::mt19937& random) {
  static const std::vector<std::string> plain = {"1", "-2.50e3", "true", "null", "\"\"", "18446744073709551615"};
  static const std::vector<std::string> text = {"{",       "}}",  "\\\"", "\\\\", "é",
                                                "\\u00e9", "𝄞",   ", ",   "[",    "<tool_call>",
                                                ": ",      "\\n", "name", "</to", "<|python_tag|"};
  static const std::vector<std::string> spaces = {"", " ", "\n  "};
  const uint32_t kind = random() % (depth > 0 ? 4 : 2);
  if (kind == 0) return Pick(plain, random);
  if (kind == 1) {
    std::string out = "\"";
    for (uint32_t i = random() % 5; i > 0; --i) out += Pick(text, random);
    return out + "\"";
  }
  std::string out = kind == 2 ? "[" : "{";
  const uint32_t size = random() % 3;
  for (uint32_t i = 0; i < size; ++i) {
    if (i > 0) out += "," + Pick(spaces, random);
    if (kind == 3) out += StrCat("\"k", i, "\":", Pick(spaces, random));
    out += RandomJson(depth - 1, random);
  }
  return out + Pick(spaces, random) + (kind == 2 ? "]" : "}");
}

inline std::string RandomArguments(std::mt19937& random) {
  return StrCat("{\"x\": ", RandomJson(3, random), random() % 2 == 0 ? ", \"name\": \"g\"}" : "}");
}

// Returns the call as an object.
inline std::string CallText(const ToolCall& call, std::mt19937& random) {
  const std::string key = random() % 2 == 0 ? "\"arguments\"" : "\"parameters\"";
  const std::string name = StrCat("\"name\": \"", call.name, "\"");
  switch (random() % 6) {
    case 0:
      return StrCat("{", key, ": ", call.arguments, ", ", name, "}");
    case 1:
      return StrCat("{\"type\": \"function\", ", name, ", ", key, " : ", call.arguments, ", \"id\": \"}\"}");
    case 2:
      return StrCat("{", name, ",\n", key, ":\n", call.arguments, "\n}");
    default:
      return StrCat("{", name, ", ", key, ": ", call.arguments, "}");
  }
}

// Deletes, repeats or adds a few bytes.
inline void Break(std::string& text, std::mt19937& random) {
  static const std::vector<std::string> bytes = {"{", "}", "\"", "\\", ",", "<", ":", " ", "é", "</tool_call>"};
  for (uint32_t i = random() % 3; i > 0 && !text.empty(); --i) {
    const size_t at = random() % text.size();
    switch (random() % 3) {
      case 0:
        text.erase(at, 1);
        break;
      case 1:
        text.insert(at, Pick(bytes, random));
        break;
      default:
        text.insert(at, text.substr(at, random() % 8));
    }
  }
  if (random() % 4 == 0) text.resize(random() % (text.size() + 1));
}

}  // namespace baton
