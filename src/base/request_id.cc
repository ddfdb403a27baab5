#include "base/request_id.h"

#include <algorithm>

#include "base/strings.h"

namespace baton {

absl::Status CheckRequestId(std::string_view path, std::string_view id) {
  if (id.size() > kMaxRequestIdBytes) {
    return absl::InvalidArgumentError(StrCat(path, ": ", id.size(), " bytes, limit ", kMaxRequestIdBytes));
  }
  if (std::ranges::all_of(id, [](char c) { return IsPlain(c, "-_.:"); })) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(path, ": expected letters, digits and \"-_.:\" only"));
}

}  // namespace baton
