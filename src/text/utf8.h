// Where characters end in bytes that may not be UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace baton {

enum class Utf8Kind {
  kCharacter,  // 1 to 4 bytes
  kInvalid,    // a maximal subpart, which decoders replace by one U+FFFD (The Unicode Standard, 3.9)
  kCutOff,     // the start of a character whose end is missing, 1 to 3 bytes
};

struct Utf8Unit {
  Utf8Kind kind;
  size_t size;  // bytes, >= 1
};

// The unit that `bytes` starts with. REQUIRES: bytes is not empty.
Utf8Unit FirstUtf8Unit(std::string_view bytes);

// The length of the longest prefix that is valid UTF-8.
size_t ValidUtf8Prefix(std::string_view bytes);

// The length of the longest prefix in which no character is.
size_t InvalidUtf8Prefix(std::string_view bytes);

// The number of characters. REQUIRES: bytes is valid UTF-8.
int64_t CountCharacters(std::string_view bytes);

}  // namespace baton
