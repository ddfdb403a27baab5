// The identity of the KV that a module makes.
#pragma once

#include "model/weights.h"

namespace baton {

// SHA-256 over the config fields that enter the computation and, per tensor in a fixed order, its name, dtype, shape
// and the SHA-256 of each 8 MiB of its bytes. A tree instead of one chain, so that all cores hash at once: 269 MB take
// 0.09 s on two cores with SHA instructions, and reading the file itself is part of that.
Digest ModuleDigest(const Weights& weights);

}  // namespace baton
