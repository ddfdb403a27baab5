#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

namespace baton {
namespace {

constexpr int kCodePoints = 324;  // all characters of the alphabet are below U+0144

bool StandsForItself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

// Printable Latin-1 characters stand for themselves. The other bytes, in order, are U+0100 and up
// (Radford et al. 2019).
std::array<int16_t, kCodePoints> MakeByteOfCodePoint() {
  std::array<int16_t, kCodePoints> byte_of;
  byte_of.fill(-1);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    byte_of[StandsForItself(byte) ? byte : next++] = static_cast<int16_t>(byte);
  }
  return byte_of;
}

}  // namespace

std::optional<std::string> BytesFromAlphabet(std::string_view text) {
  static const std::array<int16_t, kCodePoints> byte_of = MakeByteOfCodePoint();
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    int code_point = static_cast<uint8_t>(text[i]);
    if (code_point >= 0x80) {
      // All characters of the alphabet have at most two bytes in UTF-8.
      if (code_point < 0xC2 || code_point > 0xDF || i + 1 == text.size()) return std::nullopt;
      code_point = (code_point & 0x1F) << 6 | (static_cast<uint8_t>(text[++i]) & 0x3F);
    }
    if (code_point >= kCodePoints || byte_of[code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte_of[code_point]));
  }
  return bytes;
}

}  // namespace baton
