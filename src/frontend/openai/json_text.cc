#include "frontend/openai/json_text.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/strings.h"
#include "text/utf8.h"

namespace baton {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";
constexpr float kLeastLogprob = -9999;

// ASCII bytes that need no escape. Bytes of UTF-8 sequences are checked elsewhere.
constexpr std::array<bool, 256> kPlain = [] {
  std::array<bool, 256> plain{};
  for (size_t byte = 0x20; byte < 0x80; ++byte) plain[byte] = byte != '"' && byte != '\\';
  return plain;
}();

void AppendEscape(std::string& out, char c) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  switch (c) {
    case '"':
    case '\\':
      out += '\\';
      out += c;
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      out += "\\u00";
      out += kDigits[static_cast<unsigned char>(c) >> 4];
      out += kDigits[c & 0xf];
  }
}

}  // namespace

void AppendJsonString(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    size_t plain = 0;
    while (plain < text.size() && kPlain[static_cast<unsigned char>(text[plain])]) ++plain;
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    if (static_cast<unsigned char>(text.front()) < 0x80) {
      AppendEscape(out, text.front());
      text.remove_prefix(1);
      continue;
    }
    const Utf8Unit unit = FirstUtf8Unit(text);
    out += unit.kind == Utf8Kind::kCharacter ? text.substr(0, unit.size) : kReplacement;
    text.remove_prefix(unit.size);
  }
  out += '"';
}

std::string JsonString(std::string_view text) {
  std::string out;
  AppendJsonString(out, text);
  return out;
}

void AppendLogprob(std::string& out, float value) {
  if (!(value >= kLeastLogprob)) value = kLeastLogprob;
  std::array<char, 32> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  out.append(buffer.data(), end);
}

std::string ToEvent(std::string_view line) { return StrCat(kData, line, kEventEnd); }

}  // namespace baton
