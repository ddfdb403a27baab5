// Unicode Normalization Form C.
#pragma once

#include <string>
#include <string_view>

namespace baton {

// `text` in NFC: itself where nothing can change, else a view into `storage`. Time is O(n log n) on any input.
// REQUIRES: text is valid UTF-8; it and storage outlive the result.
std::string_view ToNfc(std::string_view text, std::string& storage);

}  // namespace baton
