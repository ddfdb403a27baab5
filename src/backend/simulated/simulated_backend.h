// Computes nothing and forgets nothing: says how long a step would take, and makes KV and tokens without weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "backend/simulated/cost_model.h"
#include "base/ids.h"
#include "model/batch.h"
#include "model/logits.h"

namespace baton {

// The KV of position p is a hash of tokens [0, p] that is chained through the slab: the step takes the hash of p - 1
// from where the block table says it is. So a block that is wrong, missing or not yet moved gives wrong tokens or
// fails a CHECK. Not a Backend, which takes real time and real memory: a simulator asks for the time first and lets it
// pass on its own clock. Blocks are counted and moved as large as the model's, and kept as 16 words each.
class SimulatedBackend {
 public:
  static constexpr int64_t kVocab = 64;  // of the tokens that are made; the model's own counts for the cost
  static constexpr int64_t kBlockWords = kBlockTokens;

  // `weights`: models of one shape that have others make other KV from the same tokens.
  SimulatedBackend(ModelConfig model, DeviceShape device, int64_t blocks, uint64_t weights = 0);

  const KvLayout& kv_layout() const { return layout_; }
  absl::Duration TimeOf(const Batch& batch) const { return StepTime(device_, WorkOf(model_, batch)); }
  absl::Duration CopyTimeOf(int64_t blocks) const { return CopyTime(model_, device_, blocks); }
  // As Backend::Forward. Greedy decoding takes the token that the last position's hash names.
  LogitsView Forward(const Batch& batch);

  // [blocks, kBlockWords] words, for what moves blocks.
  std::span<std::byte> slab() { return std::as_writable_bytes(std::span(slab_)); }
  static constexpr int64_t BlockBytes() { return kBlockWords * static_cast<int64_t>(sizeof(uint64_t)); }
  // What a push of the whole block moves.
  void TakeBlock(const SimulatedBackend& from, BlockId source, BlockId target);

 private:
  uint64_t& At(std::span<const BlockId> blocks, int64_t position);
  uint64_t Read(std::span<const BlockId> blocks, int64_t position);

  const ModelConfig model_;
  const DeviceShape device_;
  const KvLayout layout_;
  const uint64_t weights_;
  std::vector<uint64_t> slab_;  // 0: never written
  std::vector<float> logits_;
};

}  // namespace baton
