#include "text/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/check.h"

namespace baton {
namespace {

struct ByteRange {
  uint8_t low, high;
  bool Has(uint8_t byte) const { return low <= byte && byte <= high; }
};

// Returns the valid second bytes after a lead byte (The Unicode Standard, table 3-7). They exclude
// overlong forms, surrogates and values above U+10FFFF.
ByteRange SecondByte(uint8_t lead) {
  switch (lead) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {0x80, 0xBF};
  }
}

size_t CharacterSize(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

bool EightAreAscii(const char* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return (word & 0x8080808080808080u) == 0;
}

}  // namespace

Utf8Unit FirstUtf8Unit(std::string_view bytes) {
  BATON_CHECK(!bytes.empty(), "empty text has no first unit");
  const auto lead = static_cast<uint8_t>(bytes[0]);
  const size_t size = CharacterSize(lead);
  if (size == 0) return {Utf8Kind::kInvalid, 1};
  ByteRange expected = SecondByte(lead);
  for (size_t i = 1; i < size; ++i) {
    if (i == bytes.size()) return {Utf8Kind::kCutOff, i};
    if (!expected.Has(static_cast<uint8_t>(bytes[i]))) return {Utf8Kind::kInvalid, i};
    expected = {0x80, 0xBF};
  }
  return {Utf8Kind::kCharacter, size};
}

size_t ValidUtf8Prefix(std::string_view bytes) {
  size_t valid = 0;
  while (valid < bytes.size()) {
    if (bytes.size() - valid >= 8 && EightAreAscii(bytes.data() + valid)) {
      valid += 8;
      continue;
    }
    const Utf8Unit unit = FirstUtf8Unit(bytes.substr(valid));
    if (unit.kind != Utf8Kind::kCharacter) break;
    valid += unit.size;
  }
  return valid;
}

size_t InvalidUtf8Prefix(std::string_view bytes) {
  size_t invalid = 0;
  while (invalid < bytes.size()) {
    const Utf8Unit unit = FirstUtf8Unit(bytes.substr(invalid));
    if (unit.kind == Utf8Kind::kCharacter) break;
    invalid += unit.size;
  }
  return invalid;
}

size_t CutOffSuffix(std::string_view bytes) {
  // Only the first byte of a character can be the first byte of its start.
  for (size_t size = 1; size <= std::min<size_t>(bytes.size(), 3); ++size) {
    const std::string_view end = bytes.substr(bytes.size() - size);
    if (FirstUtf8Unit(end).kind == Utf8Kind::kCutOff) return size;
  }
  return 0;
}

int64_t CountCharacters(std::string_view bytes) {
  return std::ranges::count_if(bytes, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace baton
