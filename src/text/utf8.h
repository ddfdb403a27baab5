// The boundaries of characters in bytes that may not be valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace baton {

enum class Utf8Kind {
  kCharacter,  // 1 to 4 bytes
  kInvalid,    // a maximal subpart, which decoders replace by one U+FFFD (Unicode Standard, 3.9)
  kCutOff,     // the start of a character at the end of the bytes, 1 to 3 bytes
};

struct Utf8Unit {
  Utf8Kind kind;
  size_t size;  // bytes, >= 1
};

// Returns the unit at the start of `bytes`. REQUIRES: `bytes` is not empty.
Utf8Unit FirstUtf8Unit(std::string_view bytes);

// Returns the length of the longest prefix that is valid UTF-8.
size_t ValidUtf8Prefix(std::string_view bytes);

// Returns the length of the longest prefix without a valid character.
size_t InvalidUtf8Prefix(std::string_view bytes);

// Returns the length of the start of a character at the end of `bytes`, 0 to 3. It is 0 if `bytes`
// ends at the end of a unit.
size_t CutOffSuffix(std::string_view bytes);

// Returns the number of characters. REQUIRES: `bytes` is valid UTF-8.
int64_t CountCharacters(std::string_view bytes);

}  // namespace baton
