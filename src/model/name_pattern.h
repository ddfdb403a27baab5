// Patterns of model names.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

// A text in which each '*' stands for any characters, also for none. All other characters stand for
// themselves, and case matters.
class NamePattern {
 public:
  explicit NamePattern(std::string_view text);

  // Takes time proportional to the product of the two lengths.
  bool Matches(std::string_view name) const { return Covers(name); }
  // Returns whether this pattern matches every name that `other` matches.
  bool Covers(const NamePattern& other) const { return Covers(other.text_); }
  // Returns whether a name exists that both patterns match.
  bool Overlaps(const NamePattern& other) const;
  // Returns whether the pattern matches one name only.
  bool is_name() const { return stars_ == 0; }
  // The pattern, with one '*' in place of several adjacent ones.
  const std::string& text() const { return text_; }

  // Puts a pattern that covers other patterns behind them.
  friend bool operator<(const NamePattern& a, const NamePattern& b);

 private:
  // Matches a text in which '*' stands for itself. Only a '*' of this pattern matches it. So this
  // pattern covers `other` if it matches the text of `other`.
  bool Covers(std::string_view text) const;

  std::string text_;
  size_t stars_ = 0;
};

}  // namespace baton
