// Helpers of the tests of timelines.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "request/timeline.h"

namespace baton {

inline absl::Time At(int64_t ms) { return absl::UnixEpoch() + absl::Milliseconds(ms); }

// Returns the ids, one after the other.
inline std::string Ids(const Timeline::Lives& lives) {
  std::string text;
  for (const auto& life : lives) absl::StrAppend(&text, life->outcome.id);
  return text;
}

}  // namespace baton
