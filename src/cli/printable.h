// Foreign text on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

// Without what a terminal obeys: control characters, C1 ones and the marks that turn the direction of text among them.
std::string Printable(std::string_view text);

// Of UTF-8; a stray byte counts with the character before it. All of the text, if it has fewer.
std::string_view FirstCharacters(std::string_view text, size_t count);

}  // namespace baton
