#include "model/name_pattern.h"

#include <algorithm>
#include <tuple>

namespace baton {

NamePattern::NamePattern(std::string_view text) {
  for (const char c : text) {
    if (c == '*' && text_.ends_with('*')) continue;
    text_ += c;
    stars_ += c == '*';
  }
}

bool NamePattern::Covers(std::string_view text) const {
  size_t p = 0, t = 0;
  // The last '*' that was met, and the first character of `text` behind the characters that it has
  // taken so far. An earlier '*' never needs to take more.
  size_t star = std::string::npos, taken = 0;
  while (t < text.size()) {
    if (p < text_.size() && text_[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < text_.size() && text_[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string::npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  return text_.find_first_not_of('*', p) == std::string::npos;
}

// Between their first and their last '*', two patterns can always match the same text: all of one
// pattern's characters and then all of the other's.
bool NamePattern::Overlaps(const NamePattern& other) const {
  if (is_name()) return other.Covers(text_);
  if (other.is_name()) return Covers(other.text_);
  const std::string_view a = text_, b = other.text_;
  const std::string_view begin_a = a.substr(0, a.find('*')), begin_b = b.substr(0, b.find('*'));
  const std::string_view end_a = a.substr(a.rfind('*') + 1), end_b = b.substr(b.rfind('*') + 1);
  return (begin_a.starts_with(begin_b) || begin_b.starts_with(begin_a)) &&
         (end_a.ends_with(end_b) || end_b.ends_with(end_a));
}

// A covered pattern has all characters of the covering one. If it has no others, it has fewer '*'.
bool operator<(const NamePattern& a, const NamePattern& b) {
  const auto rank = [](const NamePattern& pattern) {
    return std::tuple(-static_cast<std::ptrdiff_t>(pattern.text_.size() - pattern.stars_), pattern.stars_);
  };
  return rank(a) < rank(b);
}

}  // namespace baton
