// Unicode Normalization Form C.
#pragma once

#include <string>
#include <string_view>

namespace baton {

// The most by which text can shrink: U+1FBE U+0308 U+0341, 7 bytes, become U+0390, 2 bytes (over all of Unicode 15).
inline constexpr int kMostNfcShrinks = 4;

// `text` in NFC: itself where nothing can change, else a view into `storage`. Time is O(n log n) on any input.
// REQUIRES: text is valid UTF-8; it and storage outlive the result.
std::string_view ToNfc(std::string_view text, std::string& storage);

// How much of the front of `text` is normalised alike whatever follows it; not always the most.
size_t NfcDecided(std::string_view text);

}  // namespace baton
