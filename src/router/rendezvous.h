// Rendezvous hashing (Thaler and Ravishankar 1998): routers that see the same workers agree on a key's worker without
// talking, and a worker that comes or goes moves only the keys that are its own.
#pragma once

#include <cstdint>
#include <string_view>

namespace baton {

// The worker with the highest weight has the key. The same on every machine and in every version.
uint64_t RendezvousWeight(std::string_view key, std::string_view worker);

}  // namespace baton
