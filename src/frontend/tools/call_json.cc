#include "frontend/tools/call_json.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "base/json/json_body.h"
#include "base/strings.h"

namespace baton {
namespace {

std::string_view Trim(std::string_view text) { return ToStd(absl::StripAsciiWhitespace(ToAbsl(text))); }

// Returns the text of the value of an object's member, by the member's index. REQUIRES: `object` is
// valid JSON and has the member.
std::string_view MemberText(std::string_view object, size_t index) {
  int64_t depth = 0;
  StringScanner strings;
  size_t member = 0, begin = 0;
  for (size_t i = 0; i < object.size(); ++i) {
    const char c = object[i];
    if (strings.Covers(c)) continue;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth == 1 && c == ':') begin = i + 1;
    const bool ends = depth == 0 ? c == '}' : depth == 1 && c == ',';
    if (ends && member++ == index) return Trim(object.substr(begin, i - begin));
  }
  return "";
}

std::optional<std::string> ReadArguments(const Json& value, std::string_view text) {
  if (value.is_null()) return "{}";
  if (value.is_object()) return std::string(text);
  if (!value.is_string()) return std::nullopt;
  const auto& inner = value.get_ref<const std::string&>();
  const auto parsed = ParseJson(inner, "arguments");
  if (!parsed.ok() || !parsed->is_object()) return std::nullopt;
  return inner;
}

}  // namespace

std::optional<ToolCall> ReadCall(std::string_view object) {
  object = Trim(object);
  const auto parsed = ParseJson(object, "tool call");
  if (!parsed.ok() || !parsed->is_object()) return std::nullopt;
  ToolCall call{.name = "", .arguments = ""};
  size_t index = 0;
  for (const auto& [key, value] : parsed->items()) {
    if (key == "name") {
      if (!value.is_string()) return std::nullopt;
      call.name = value.get<std::string>();
    } else if (key == "arguments" || key == "parameters") {
      const auto arguments = ReadArguments(value, MemberText(object, index));
      if (!arguments || !call.arguments.empty()) return std::nullopt;
      call.arguments = *arguments;
    } else if (key != "type" && key != "id") {
      return std::nullopt;
    }
    ++index;
  }
  if (call.name.empty()) return std::nullopt;
  if (call.arguments.empty()) call.arguments = "{}";
  return call;
}

}  // namespace baton
