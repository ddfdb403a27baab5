#include "router/rendezvous.h"

namespace baton {
namespace {

constexpr uint64_t kFnvOffset = 0xcbf29ce484222325;  // FNV-1a, 64 bits
constexpr uint64_t kFnvPrime = 0x100000001b3;

uint64_t Fnv(uint64_t hash, std::string_view bytes) {
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * kFnvPrime;
  return hash;
}

// The finaliser of SplitMix64 (Steele et al. 2014). FNV alone gives similar names similar high
// bits.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t RendezvousWeight(std::string_view key, std::string_view worker) {
  return Mix(Mix(Fnv(kFnvOffset, key)) ^ Fnv(kFnvOffset, worker));
}

}  // namespace baton
