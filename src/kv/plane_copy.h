// Copies between a slab and the host's memory, in the order that the bytes have in one slab.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kv/slab.h"

namespace baton {

// Of what ranks share more than a plane at once would come stripe after stripe (kv/striped_slab.h), so it is copied by
// the plane. One of `to` and `from` is in the slab. REQUIRES: whole planes; of memory that nobody shares, any bytes.
absl::Status CopyPlanes(const Slab& slab, int64_t plane_bytes, std::byte* to, const std::byte* from, int64_t bytes);

}  // namespace baton
