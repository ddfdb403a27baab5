// A backend whose model is computed by several ranks together.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "backend/communicator.h"
#include "kv/striped_slab.h"
#include "model/shard.h"

namespace baton {

// One rank: a backend whose forward pass exchanges sums with the other ranks through its
// communicator.
struct Rank {
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Backend> backend;
};

// The bytes of each plane (kv/striped_slab.h) that a rank holds. `layout` is that of the whole
// model's blocks.
StripeRange StripeOf(const KvLayout& layout, const Shard& shard);

// Bytes of a rank's part of a block. `layout` is that of the whole model's blocks.
int64_t BlockBytesOf(const KvLayout& layout, const Shard& shard);

// Returns a backend that runs the first rank's pass on the caller's thread, and the pass of each
// other rank on a thread of its own. Its logits are those of the first rank. Its slab presents all
// ranks' slabs as one slab of `layout`, the layout of the whole model.
//
// REQUIRES: at least one rank, in order of rank, each with the weights that ShardWeights returns
// for it. RESOURCE_EXHAUSTED: as for StripedSlab::Make.
absl::StatusOr<std::unique_ptr<Backend>> MakeTensorParallelBackend(std::vector<Rank> ranks, const KvLayout& layout);

}  // namespace baton
