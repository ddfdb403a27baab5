// Copies between a slab and host memory. The host's bytes have the layout of one whole slab, even
// if ranks share the slab.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv/slab.h"

namespace baton {

// Appends to `copies` the copies that Slab::Copy needs to move `bytes` bytes from `from` to `to`. A
// slab that ranks share (StripedSlab) orders a copy of several planes by stripes, so this function
// copies it plane by plane. REQUIRES: exactly one of `to` and `from` lies in `slab`. The bytes are
// whole planes if ranks share the slab.
void AddPlanes(const Slab& slab, int64_t plane_bytes, std::byte* to, const std::byte* from, int64_t bytes,
               std::vector<MemoryCopy>& copies);

}  // namespace baton
