// The text of an output, as its tokens give it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace baton {

// The text of one output in two views: the shown text, which leaves special tokens out, and the
// same text with the names of special tokens in their places. Stop strings are looked for in both
// views (StopMatcher). A decode worker and the router's readers of special tokens use this class,
// so they find the same end. The tokenizer must outlive this object.
class OutputText {
 public:
  // The name of a special token, behind the first `at` bytes of the shown text.
  struct Name {
    TokenId id;
    int64_t at;
  };

  // A stop string counts only if a token behind the first `min_tokens` tokens completes it.
  // REQUIRES: no stop string is empty.
  OutputText(const Tokenizer& tokenizer, std::span<const std::string> stops, int64_t min_tokens)
      : tokenizer_(tokenizer), detokenizer_(tokenizer), stop_matcher_(stops), before_stops_(min_tokens) {}

  // As Detokenizer::BeginAfter.
  void BeginAfter(std::span<const TokenId> before) { detokenizer_.BeginAfter(before); }
  // Adds a token. Returns the shown text that is complete now and before any stop string.
  std::string Push(TokenId id);
  // Ends the output. Returns the shown text that was held back.
  std::string Finish();
  // The names that the last Push or Finish released, in order. A name is held back as text is: a
  // stop string that contains it drops it.
  std::span<const Name> names() const { return std::span(names_).first(released_); }
  // Returns true once a stop string is complete.
  bool stopped() const { return stop_matcher_.stopped(); }
  bool has_stops() const { return !stop_matcher_.empty(); }

 private:
  std::string Show(std::string_view text);
  void DropReleased();
  void ReleaseNames() { released_ = names_.size() - stop_matcher_.held_names(); }

  const Tokenizer& tokenizer_;
  Detokenizer detokenizer_;
  StopMatcher stop_matcher_;
  int64_t before_stops_;     // tokens to come that complete no stop string
  int64_t made_ = 0;         // bytes of shown text so far, with those that are held back
  std::vector<Name> names_;  // released_ names, and then those that are held back
  size_t released_ = 0;
};

}  // namespace baton
