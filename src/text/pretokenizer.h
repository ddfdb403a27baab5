// The pre-tokenizer, which splits text into pre-tokens. No BPE merge crosses a pre-token.
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
  // Compiles the patterns of a tokenizer.json (see pretokenizer_pattern.h). Each pattern splits the
  // pieces of the previous pattern, as Hugging Face's Split with behavior Isolated does. Each match
  // is a piece, and so is each text between matches.
  static absl::StatusOr<PreTokenizer> Create(std::span<const std::string> patterns);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Calls `piece` with the pieces of `text`, from left to right. No piece is empty, and their
  // concatenation is `text`. Thread-safe. REQUIRES: `text` is valid UTF-8.
  void Split(std::string_view text, absl::FunctionRef<void(std::string_view piece)> piece) const;
  // Calls `piece` with the first pieces of a text of which only the prefix `text` is present. It
  // stops before the first piece that later text could change. Returns the total length of the
  // pieces. The caller splits the rest again when it has more text. With a pattern that looks
  // behind, there are no such pieces. Thread-safe. REQUIRES: as Split.
  size_t SplitSealed(std::string_view text, absl::FunctionRef<void(std::string_view piece)> piece) const;

 private:
  struct Pattern;  // hides PCRE2 from includers of this header
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
