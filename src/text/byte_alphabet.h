// The byte alphabet of GPT-2: a printable character for each byte. Byte-level BPE files use it to
// write raw bytes as text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace baton {

// Returns the bytes that `text` stands for ("Ġthe" is " the"). Returns nullopt if `text` has a
// character outside the alphabet.
std::optional<std::string> BytesFromAlphabet(std::string_view text);

}  // namespace baton
