// Several ranks that compute one model together, as one backend.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "backend/communicator.h"
#include "kv/striped_slab.h"
#include "model/shard.h"

namespace baton {

// One rank: a backend whose forward pass meets the others' through its communicator.
struct Rank {
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Backend> backend;
};

// Which bytes of a plane (kv/striped_slab.h) of blocks of `layout`, the whole model's, a rank has.
StripeRange StripeOf(const KvLayout& layout, const Shard& shard);

// Of a rank's part of a block.
int64_t BlockBytesOf(const KvLayout& layout, const Shard& shard);

// Runs every rank's pass on a thread of its own, the first on the caller's; the logits are the first rank's. `layout`
// is the whole model's, and the slab is all ranks' as one. REQUIRES: at least one rank, in order, each with what
// ShardWeights gives it. RESOURCE_EXHAUSTED: as for StripedSlab.
absl::StatusOr<std::unique_ptr<Backend>> MakeTensorParallelBackend(std::vector<Rank> ranks, const KvLayout& layout);

}  // namespace baton
