// The layout, the lease and the reservation in the tests of one side of a hand-off.
#pragma once

#include "absl/time/time.h"
#include "base/ids.h"
#include "kv/block_layout.h"

namespace baton {

inline constexpr KvLayout kLayout{.layers = 4, .kv_heads = 1, .head_dim = 2, .format = KvFormat::kBf16};
inline constexpr absl::Duration kLease = absl::Seconds(10);
inline constexpr ReservationRef kRef{ReservationId(7), Generation(70)};

}  // namespace baton
