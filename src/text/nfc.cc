#include "text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/check.h"

namespace baton {
namespace {

// Returns true for a byte of an easy character, one below U+0300. Its lead byte is below 0xCC. Easy
// characters are starters that never compose with the preceding character. Text of easy characters
// is in NFC, and text may be cut before each of them.
bool IsEasy(char byte) { return static_cast<uint8_t>(byte) < 0xCC; }

struct CodePoints {
  utf8proc_int32_t first, last;
};

// Marks and composites that Unicode 10 to 18 added. The normaliser of Hugging Face has Unicode 9,
// in which they are unassigned and thus unchanged. Vocabularies were trained with that normaliser.
// utf8proc has some of the characters, depending on its version.
constexpr CodePoints kSinceUnicode9[] = {
    {0x5C8, 0x5C9},     {0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1AF0},
    {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x105C9, 0x105C9}, {0x105D2, 0x105D2}, {0x105DA, 0x105DA},
    {0x105E4, 0x105E4}, {0x10D24, 0x10D27}, {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC}, {0x10ECB, 0x10ECF},
    {0x10EF0, 0x10EFB}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070},
    {0x1133B, 0x1133B}, {0x11382, 0x11385}, {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x11391},
    {0x113C2, 0x113C2}, {0x113C5, 0x113C5}, {0x113C7, 0x113C8}, {0x113CE, 0x113D0}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943},
    {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42},
    {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x1611E, 0x1611E}, {0x16121, 0x16129},
    {0x1612F, 0x1612F}, {0x16D63, 0x16D63}, {0x16D67, 0x16D6A}, {0x16FF0, 0x16FF1}, {0x1D127, 0x1D128},
    {0x1D250, 0x1D252}, {0x1D25B, 0x1D25C}, {0x1D25F, 0x1D25F}, {0x1D280, 0x1D281}, {0x1E08F, 0x1E08F},
    {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF},
    {0x1E6E3, 0x1E6E3}, {0x1E6E6, 0x1E6E6}, {0x1E6EE, 0x1E6EF}, {0x1E6F5, 0x1E6F5}};

bool IsSinceUnicode9(utf8proc_int32_t code_point) {
  const auto* range = std::lower_bound(std::begin(kSinceUnicode9), std::end(kSinceUnicode9), code_point,
                                       [](const CodePoints& points, auto c) { return points.last < c; });
  return range != std::end(kSinceUnicode9) && range->first <= code_point;
}

int CombiningClass(utf8proc_int32_t code_point) { return utf8proc_get_property(code_point)->combining_class; }

void AppendDecomposed(utf8proc_int32_t code_point, std::vector<utf8proc_int32_t>& out) {
  utf8proc_int32_t parts[8];  // the longest canonical decomposition has 4
  int unused_boundary = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(code_point, parts, std::size(parts), UTF8PROC_DECOMPOSE, &unused_boundary);
  BATON_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(std::size(parts)),
              "the decomposition is longer than its buffer");
  out.insert(out.end(), parts, parts + count);
}

// Sorts each run of combining marks by class. utf8proc would sort by insertion, which takes
// quadratic time on a long run.
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

// Appends the composition of `decomposed` to `out` and clears `decomposed`.
void Compose(std::vector<utf8proc_int32_t>& decomposed, std::string& out) {
  ReorderMarks(decomposed);
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  const utf8proc_ssize_t composed =
      utf8proc_normalize_utf32(decomposed.data(), static_cast<utf8proc_ssize_t>(decomposed.size()), options);
  BATON_CHECK(composed >= 0, "composition cannot fail");
  for (utf8proc_ssize_t i = 0; i < composed; ++i) {
    utf8proc_uint8_t bytes[4];
    const utf8proc_ssize_t size = utf8proc_encode_char(decomposed[i], bytes);
    out.append(reinterpret_cast<const char*>(bytes), size);
  }
  decomposed.clear();
}

void AppendNfc(std::string_view text, std::string& out) {
  std::vector<utf8proc_int32_t> decomposed;
  decomposed.reserve(text.size());
  while (!text.empty()) {
    utf8proc_int32_t code_point;
    const utf8proc_ssize_t size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                                   static_cast<utf8proc_ssize_t>(text.size()), &code_point);
    BATON_CHECK(size > 0, "text must be valid UTF-8");
    if (IsSinceUnicode9(code_point)) {
      Compose(decomposed, out);
      out += text.substr(0, size);
    } else {
      AppendDecomposed(code_point, decomposed);
    }
    text.remove_prefix(size);
  }
  Compose(decomposed, out);
}

// Returns the end of the run of other ("hard") characters that starts at `hard`: the position of
// the next easy character, or the end of the text.
size_t HardEnd(std::string_view text, size_t hard) {
  size_t end = hard;
  while (end < text.size() && (!IsEasy(text[end]) || (text[end] & 0xC0) == 0x80)) ++end;
  return end;
}

// Returns the position of the character before `position`, but at least `begin`. That character may
// compose with a hard character behind it, so the caller includes it in the run.
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

size_t NfcDecided(std::string_view text) {
  // An easy character, or one from U+4000 to U+9FFF, never composes with the preceding character.
  // Text may be cut before such a character.
  const auto may_cut_before = [](char byte) {
    const auto lead = static_cast<uint8_t>(byte);
    return lead < 0x80 || (lead >= 0xC2 && IsEasy(byte)) || (lead >= 0xE4 && lead <= 0xE9);
  };
  size_t at = text.size();
  while (at > 0 && !may_cut_before(text[at - 1])) --at;
  return at == 0 ? 0 : at - 1;
}

}  // namespace baton
