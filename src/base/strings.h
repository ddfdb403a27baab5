// Conversions for abseil builds whose absl::string_view is a type of its own, as on Debian.
// std::string_view does not convert to that type.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace baton {

inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view ToStd(absl::string_view text) { return {text.data(), text.size()}; }

namespace internal {
template <typename T>
const T& ForStrCat(const T& value) {
  return value;
}
inline absl::string_view ForStrCat(std::string_view value) { return ToAbsl(value); }
}  // namespace internal

// Like absl::StrCat, but also accepts std::string_view.
template <typename... Args>
std::string StrCat(const Args&... args) {
  return absl::StrCat(internal::ForStrCat(args)...);
}

// Returns whether `c` is an ASCII letter or digit, or one of the characters of `more`.
inline bool IsPlain(char c, std::string_view more) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || more.find(c) != std::string_view::npos;
}

inline std::string_view Message(const absl::Status& status) { return ToStd(status.message()); }

// Returns "CODE: MESSAGE", or "OK". Unlike ToString, it leaves out payloads, whose order is random.
inline std::string CodeAndMessage(const absl::Status& status) {
  return status.ok() ? "OK" : absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message());
}

}  // namespace baton
