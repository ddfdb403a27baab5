// Copies between a slab and the host's memory, in the order that the bytes have in one slab.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv/slab.h"

namespace baton {

// Appends them to `copies`, for Slab::Copy. Of what ranks share more than a plane at once would come stripe after
// stripe (kv/striped_slab.h), so it is copied by the plane. One of `to` and `from` is in the slab. REQUIRES: whole
// planes; of memory that nobody shares, any bytes.
void AddPlanes(const Slab& slab, int64_t plane_bytes, std::byte* to, const std::byte* from, int64_t bytes,
               std::vector<MemoryCopy>& copies);

}  // namespace baton
