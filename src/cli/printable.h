// Text of foreign origin, made safe for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

// Replaces every character that a terminal interprets: C0 and C1 control characters, and marks that
// change the direction of text. Also replaces invalid UTF-8.
std::string Printable(std::string_view text);

// Returns the first `count` characters of UTF-8 text, or all of it if it has fewer. A stray byte
// counts as part of the character before it.
std::string_view FirstCharacters(std::string_view text, size_t count);

}  // namespace baton
