// Splits text into pre-tokens, across which no merge goes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace baton {

class PreTokenizer {
 public:
  // Patterns as tokenizer.json writes them (see pretokenizer_pattern.h); each splits the pieces of the one before, as
  // Hugging Face's Split with behavior Isolated does: matches are pieces, and so is what lies between them.
  static absl::StatusOr<PreTokenizer> Create(std::span<const std::string> patterns);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // The pieces of `text` from left to right; none is empty, and together they are the text. Thread-safe.
  // REQUIRES: text is valid UTF-8.
  void Split(std::string_view text, absl::FunctionRef<void(std::string_view piece)> piece) const;
  // The first pieces of a text that begins with `text` and may go on: those that are the same whatever follows.
  // Returns their bytes; the rest is to be split again when there is more of it. Patterns that look behind seal
  // nothing.
  size_t SplitSealed(std::string_view text, absl::FunctionRef<void(std::string_view piece)> piece) const;

 private:
  struct Pattern;  // keeps PCRE2 out of this header
  struct Matcher;
  PreTokenizer();
  void SplitFrom(std::span<const Matcher> matchers, std::string_view text,
                 absl::FunctionRef<void(std::string_view piece)> piece) const;
  size_t SealedFrom(std::span<const Matcher> matchers, std::string_view text,
                    absl::FunctionRef<void(std::string_view piece)> piece) const;

  bool looks_behind_ = false;
  std::vector<Pattern> patterns_;
};

}  // namespace baton
