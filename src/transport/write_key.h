// The write key of a worker that guards its blocks (transport/write_guard.h), with its id. A peer
// sends both with each write.
#pragma once

#include <array>
#include <cstdint>

namespace baton {

// A secret that the worker and the one peer share. It must not be logged.
using WriteKeyBits = std::array<uint8_t, 16>;

struct WriteKey {
  uint64_t id = 0;  // positive and never reused
  WriteKeyBits bits{};
  friend bool operator==(const WriteKey&, const WriteKey&) = default;
};

}  // namespace baton
