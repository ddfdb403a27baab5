// Writes JSON directly to a string.
#pragma once

#include <string>
#include <string_view>

namespace baton {

// Appends `text` in quotes. Each maximal subpart that is not UTF-8 becomes one U+FFFD.
void AppendJsonString(std::string& out, std::string_view text);
std::string JsonString(std::string_view text);
// Appends the shortest text that reads as the same float. JSON has no infinities, so -9999 stands
// for minus infinity, as in OpenAI's API.
void AppendLogprob(std::string& out, float value);

// A server-sent event is kData, one line and kEventEnd.
inline constexpr std::string_view kData = "data: ";
inline constexpr std::string_view kEventEnd = "\n\n";
std::string ToEvent(std::string_view line);

}  // namespace baton
