// Unicode Normalization Form C.
#pragma once

#include <string>
#include <string_view>

namespace baton {

// Upper bound on the factor by which normalisation shrinks a text. The greatest factor in Unicode
// 15 is 7 / 2: U+1FBE U+0308 U+0341 (7 bytes) become U+0390 (2 bytes).
inline constexpr int kMostNfcShrinks = 4;

// Returns `text` in NFC. The result is `text` itself if it cannot change, and otherwise a view into
// `storage`. Takes O(n log n) time on any input. REQUIRES: `text` is valid UTF-8. `text` and
// `storage` outlive the result.
std::string_view ToNfc(std::string_view text, std::string& storage);

// Returns the length of a prefix of `text` whose normal form does not depend on later text. It may
// not be the longest such prefix.
size_t NfcDecided(std::string_view text);

}  // namespace baton
