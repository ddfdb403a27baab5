// What a peer shows in order to write to a worker that guards its blocks (transport/write_guard.h).
#pragma once

#include <array>
#include <cstdint>

namespace baton {

// A secret between the worker and the one peer that was given it. Never logged.
using WriteKey = std::array<uint8_t, 16>;

struct WriteRight {
  uint64_t id = 0;  // never 0, never used again
  WriteKey key{};
  friend bool operator==(const WriteRight&, const WriteRight&) = default;
};

}  // namespace baton
