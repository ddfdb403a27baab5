// The names that clients give to requests and contexts.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"

namespace baton {

inline constexpr size_t kMaxRequestIdBytes = 128;

// Returns INVALID_ARGUMENT if `id` is longer than kMaxRequestIdBytes or has other characters than
// letters, digits and "-_.:". An empty id is valid. The error names `path`.
absl::Status CheckRequestId(std::string_view path, std::string_view id);

}  // namespace baton
