#include "kv/plane_copy.h"

#include "base/status.h"

namespace baton {

absl::Status CopyPlanes(const Slab& slab, int64_t plane_bytes, std::byte* to, const std::byte* from, int64_t bytes) {
  const bool shared = !slab.on_host() && slab.device() == nullptr;
  const int64_t step = shared ? plane_bytes : bytes;
  for (int64_t done = 0; done < bytes; done += step) {
    RETURN_IF_ERROR(slab.Copy(to + done, from + done, static_cast<size_t>(step)));
  }
  return absl::OkStatus();
}

}  // namespace baton
