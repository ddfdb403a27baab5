// A hash of names that is the same in every run.
#pragma once

#include <cstdint>
#include <string_view>

namespace baton {

// FNV-1a (Fowler, Noll, Vo).
constexpr uint64_t Fnv1a(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace baton
