#include "cli/printable.h"

namespace baton {
namespace {

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// Returns the size in bytes of the character that begins with `first`. Returns 0 if no character
// begins so.
size_t SizeOf(unsigned char first) {
  if (first < 0x80) return 1;
  if (first < 0xC2) return 0;
  return first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t size = SizeOf(byte);
    size_t end = i + 1;
    while (end < text.size() && end - i < size && IsContinuation(text[end])) ++end;
    const std::string_view character = text.substr(i, end - i);
    const bool c1 = byte == 0xC2 && character.size() == 2 && static_cast<unsigned char>(character[1]) < 0xA0;
    const bool broken = character.size() != size;
    const bool turns = character >= "\u2028" && character <= "\u202E";
    const bool isolates = character >= "\u2066" && character <= "\u2069";
    if (byte < 0x20 || byte == 0x7F || c1 || broken || turns || isolates) {
      result += '?';
    } else {
      result += character;
    }
    i = end;
  }
  return result;
}

std::string_view FirstCharacters(std::string_view text, size_t count) {
  size_t end = 0;
  for (; end < text.size() && count > 0; --count) {
    do ++end;
    while (end < text.size() && IsContinuation(text[end]));
  }
  return text.substr(0, end);
}

}  // namespace baton
