#include "text/detokenizer.h"

#include <string>
#include <utility>

#include "text/utf8.h"

namespace baton {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

}  // namespace

std::span<const TokenId> UnfinishedEnd(const Tokenizer& tokenizer, std::span<const TokenId> ids) {
  constexpr size_t kMostBytes = 3;  // of the start of a character
  std::string bytes;
  for (size_t count = 1; count <= ids.size() && bytes.size() < kMostBytes; ++count) {
    bytes.insert(0, tokenizer.TokenBytes(ids[ids.size() - count]));
    if (CutOffSuffix(bytes) > 0) return ids.last(count);
  }
  return {};
}

void Detokenizer::BeginAfter(std::span<const TokenId> before) {
  pending_.clear();
  for (const TokenId id : UnfinishedEnd(tokenizer_, before)) Push(id);
}

std::string Detokenizer::Push(TokenId id) {
  if (tokenizer_.IsSpecial(id)) return Finish();
  pending_ += tokenizer_.TokenBytes(id);
  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const size_t valid = ValidUtf8Prefix(rest);
    text += rest.substr(0, valid);
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    const Utf8Unit unit = FirstUtf8Unit(rest);
    if (unit.kind == Utf8Kind::kCutOff) break;
    text += kReplacement;
    rest.remove_prefix(unit.size);
  }
  pending_ = std::string(rest);
  return text;
}

std::string Detokenizer::Finish() {
  // The start of a character is one maximal subpart, and thus one U+FFFD (see Utf8Kind).
  return std::exchange(pending_, "").empty() ? "" : std::string(kReplacement);
}

bool Detokenizer::Breaks(TokenId id) const {
  if (pending_.empty() || tokenizer_.IsSpecial(id)) return !pending_.empty();
  const std::string_view bytes = tokenizer_.TokenBytes(id);
  return !bytes.empty() && FirstUtf8Unit(pending_ + bytes.front()).kind == Utf8Kind::kInvalid;
}

}  // namespace baton
