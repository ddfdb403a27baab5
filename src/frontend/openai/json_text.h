// Writes JSON without building it first.
#pragma once

#include <string>
#include <string_view>

namespace baton {

// Appends `text` in quotes. What is not UTF-8 becomes U+FFFD, once for each maximal subpart.
void AppendJsonString(std::string& out, std::string_view text);
std::string JsonString(std::string_view text);
// The shortest text that reads as the same float; JSON has no infinities, -9999 stands for minus infinity as with
// OpenAI.
void AppendLogprob(std::string& out, float value);

// A server-sent event is kData, one line, kEventEnd.
inline constexpr std::string_view kData = "data: ";
inline constexpr std::string_view kEventEnd = "\n\n";
std::string ToEvent(std::string_view line);

}  // namespace baton
