// Text that may be the beginning of a tag, such as <think>.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace baton {

inline constexpr std::string_view kSpace = " \t\r\n";

// Returns the length of the longest end of `text` that may be the beginning of `tag`.
inline size_t CutOff(std::string_view text, std::string_view tag) {
  for (size_t size = std::min(text.size(), tag.size() - 1); size > 0; --size) {
    if (text.ends_with(tag.substr(0, size))) return size;
  }
  return 0;
}

}  // namespace baton
