#include "kv/plane_copy.h"

namespace baton {

void AddPlanes(const Slab& slab, int64_t plane_bytes, std::byte* to, const std::byte* from, int64_t bytes,
               std::vector<MemoryCopy>& copies) {
  const bool shared = !slab.on_host() && slab.device() == nullptr;
  const int64_t step = shared ? plane_bytes : bytes;
  for (int64_t done = 0; done < bytes; done += step) {
    copies.push_back({to + done, from + done, static_cast<size_t>(step)});
  }
}

}  // namespace baton
