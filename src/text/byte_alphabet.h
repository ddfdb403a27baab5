// GPT-2's printable stand-ins for bytes: how byte-level BPE files write raw bytes as text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace baton {

// The bytes that `text` stands for ("Ġthe" is " the"); none if a character of it stands for no byte.
std::optional<std::string> BytesFromAlphabet(std::string_view text);

}  // namespace baton
