// Tensor parallelism: the part of a model that one of several ranks computes (Megatron-LM, arXiv 1909.08053).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "model/weights.h"

namespace baton {

struct Shard {
  int rank = 0;  // [0, ranks)
  int ranks = 1;
};

// [begin, end) of n things that belong to a rank: in order, and as even as whole multiples of `unit` allow. n is a
// multiple of it.
struct ShardRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};
ShardRange RangeOf(const Shard& shard, int64_t n, int64_t unit = 1);

// INVALID_ARGUMENT: more ranks than KV heads, or another part that cannot be shared out. Ranks need not divide the KV
// heads: some have one head more then.
absl::Status CheckShard(const ModelConfig& config, int ranks);

// Whose logits a rank computes, and how many each of the ranks does.
ShardRange VocabRange(const Shard& shard, const ModelConfig& config);
std::vector<int64_t> VocabColumns(int ranks, const ModelConfig& config);

// Whole KV heads with their query heads, and the part of the FFN, that belong to a rank: q, k, v, gate, up and LM head
// by outputs, o and down by inputs. So a rank attends to its own heads only, and what o and down give is to be summed
// over the ranks. Embedding and norms are whole. `heads`, `kv_heads` and `ffn` of its config are the rank's, all else
// is the model's, the digest too; lm_head has the rank's rows of the vocabulary. REQUIRES: CheckShard. Views of
// `whole`, which must outlive it.
std::unique_ptr<Weights> ShardWeights(const Weights& whole, const Shard& shard);

}  // namespace baton
