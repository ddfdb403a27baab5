// The write key of a worker that guards its blocks (transport/write_guard.h), with its id. A peer
// sends both with each write.
#pragma once

#include <array>
#include <cstdint>

namespace baton {

// A secret that the worker and the one peer share. It must not be logged.
using WriteKey = std::array<uint8_t, 16>;

struct WriteRight {
  uint64_t id = 0;  // positive and never reused
  WriteKey key{};
  friend bool operator==(const WriteRight&, const WriteRight&) = default;
};

}  // namespace baton
