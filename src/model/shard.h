// The part of a model that one rank of a tensor-parallel group computes (Megatron-LM, arXiv
// 1909.08053).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "model/weights.h"

namespace baton {

// The position of a rank in its group.
struct Shard {
  int rank = 0;  // [0, ranks)
  int ranks = 1;
};

// The half-open range [begin, end) of a dimension that belongs to a rank.
struct ShardRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};
// Returns the part of [0, n) that belongs to a rank. The parts of all ranks are consecutive, and as
// even as multiples of `unit` allow. REQUIRES: n is a multiple of `unit`.
ShardRange RangeOf(const Shard& shard, int64_t n, int64_t unit = 1);

// Checks that `ranks` ranks can share the model. Returns INVALID_ARGUMENT if a rank would get no KV
// head, no tile of the FFN or no tile of the vocabulary. The number of KV heads need not be a
// multiple of `ranks`. If it is not, some ranks have one head more than others.
absl::Status CheckShard(const ModelConfig& config, int ranks);

// Returns the range of the vocabulary for which a rank computes logits.
ShardRange VocabRange(const Shard& shard, const ModelConfig& config);
// Returns the number of logits that each rank computes, by rank.
std::vector<int64_t> VocabColumns(int ranks, const ModelConfig& config);

// Returns the weights of one rank, as views of `whole`.
// - The rank has whole KV heads with their query heads, and a part of the FFN.
// - q, k, v, gate, up and LM head are split by outputs, o and down by inputs. Embedding and norms
//   are whole.
// - A rank therefore attends only to its own heads. The outputs of o and down must be summed over
//   the ranks.
// - In the config, `heads`, `kv_heads` and `ffn` are the rank's values. All other values, and the
//   digest, are the whole model's.
// REQUIRES: CheckShard passes. `whole` outlives the result.
std::unique_ptr<Weights> ShardWeights(const Weights& whole, const Shard& shard);

}  // namespace baton
