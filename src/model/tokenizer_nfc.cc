#include "model/tokenizer_nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace baton {
namespace {

// Characters below U+0300, whose lead bytes are below 0xCC, are starters that never compose with what precedes them:
// text of them alone is in NFC already, and text may be cut before any of them.
bool IsEasy(char byte) { return static_cast<uint8_t>(byte) < 0xCC; }

int CombiningClass(utf8proc_int32_t code_point) { return utf8proc_get_property(code_point)->combining_class; }

std::vector<utf8proc_int32_t> Decompose(std::string_view text) {
  std::vector<utf8proc_int32_t> decomposed;
  decomposed.reserve(text.size());
  const auto* next = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto* end = next + text.size();
  while (next < end) {
    utf8proc_int32_t code_point;
    const utf8proc_ssize_t size = utf8proc_iterate(next, end - next, &code_point);
    BATON_CHECK(size > 0, "text must be valid UTF-8");
    next += size;
    utf8proc_int32_t parts[8];  // the longest canonical decomposition has 4
    int unused_boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(code_point, parts, std::size(parts), UTF8PROC_DECOMPOSE, &unused_boundary);
    BATON_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(std::size(parts)), "decomposition fits");
    decomposed.insert(decomposed.end(), parts, parts + count);
  }
  return decomposed;
}

// Sorts each run of combining marks by class. utf8proc would do it too, but by insertion: quadratic on a long run.
void ReorderMarks(std::vector<utf8proc_int32_t>& text) {
  for (auto run = text.begin(); run != text.end();) {
    if (CombiningClass(*run) == 0) {
      ++run;
      continue;
    }
    const auto run_end = std::find_if(run, text.end(), [](auto c) { return CombiningClass(c) == 0; });
    std::stable_sort(run, run_end, [](auto a, auto b) { return CombiningClass(a) < CombiningClass(b); });
    run = run_end;
  }
}

void AppendNfc(std::string_view text, std::string& out) {
  std::vector<utf8proc_int32_t> buffer = Decompose(text);
  ReorderMarks(buffer);
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  const utf8proc_ssize_t composed =
      utf8proc_normalize_utf32(buffer.data(), static_cast<utf8proc_ssize_t>(buffer.size()), options);
  BATON_CHECK(composed >= 0, "composition cannot fail");
  for (utf8proc_ssize_t i = 0; i < composed; ++i) {
    utf8proc_uint8_t bytes[4];
    const utf8proc_ssize_t size = utf8proc_encode_char(buffer[i], bytes);
    out.append(reinterpret_cast<const char*>(bytes), size);
  }
}

// The end of the hard stretch that starts at `hard`: the next easy character after it.
size_t HardEnd(std::string_view text, size_t hard) {
  size_t end = hard;
  while (end < text.size() && (!IsEasy(text[end]) || (text[end] & 0xC0) == 0x80)) ++end;
  return end;
}

// The character before `position` may compose with what follows, so it belongs to the hard stretch.
size_t PreviousCharacter(std::string_view text, size_t position, size_t begin) {
  if (position == begin) return begin;
  do --position;
  while (position > begin && (text[position] & 0xC0) == 0x80);
  return position;
}

}  // namespace

std::string_view ToNfc(std::string_view text, std::string& storage) {
  storage.clear();
  size_t done = 0;
  while (true) {
    const size_t hard = std::find_if_not(text.begin() + done, text.end(), IsEasy) - text.begin();
    if (hard == text.size()) break;
    const size_t begin = PreviousCharacter(text, hard, done);
    const size_t end = HardEnd(text, hard);
    storage += text.substr(done, begin - done);
    AppendNfc(text.substr(begin, end - begin), storage);
    done = end;
  }
  if (done == 0) return text;
  storage += text.substr(done);
  return storage;
}

}  // namespace baton
