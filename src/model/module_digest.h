// The identity of the KV that a module makes.
#pragma once

#include <string>

#include "model/weights.h"

namespace baton {

// SHA-256 over
//   - a line of the config fields that enter the computation,
//   - a line "name dtype rows cols" per tensor (dtype 0: f32, 1: bf16), in the order of TensorsOf,
//   - the SHA-256 of each 8 MiB of each tensor, in the same order.
// A tree instead of one chain, so that all cores hash at once: 269 MB take 0.19 s of CPU time with SHA instructions and
// 0.45 s without, shared by up to 16 threads.
Digest ModuleDigest(const Weights& weights);

std::string Hex(const Digest& digest);

}  // namespace baton
