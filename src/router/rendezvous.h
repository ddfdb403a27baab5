// Rendezvous hashing (Thaler and Ravishankar 1998). Routers that see the same workers agree on the
// worker of a key without communication. A worker that joins or leaves moves only its own keys.
#pragma once

#include <cstdint>
#include <string_view>

namespace baton {

// Returns the weight of a worker for a key. The key belongs to the worker with the highest weight.
// The result is the same on every machine and in every version.
uint64_t RendezvousWeight(std::string_view key, std::string_view worker);

}  // namespace baton
