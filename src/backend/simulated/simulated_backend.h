// A backend without weights for simulations: it returns how long a step would take, and it makes KV
// and tokens by hashing.
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

// The KV of position p is a hash of tokens [0, p] that is chained through the slab. A step reads
// the hash of p - 1 from the block that the block table names. A block that is wrong, missing or
// not yet moved therefore gives wrong tokens or fails a CHECK.
//
// SimulatedBackend does not implement Backend, which takes real time and real memory. A simulator
// gets a step's time and advances its virtual clock by it. The cost model counts blocks of the
// model's size, but a block occupies only 16 words of memory. Not thread-safe.
class SimulatedBackend {
 public:
  // Vocabulary of the tokens that are made. The model's own vocabulary counts for the cost.
  static constexpr int64_t kVocab = 64;
  static constexpr int64_t kBlockWords = kBlockTokens;

  // `blocks` is the number of blocks in the slab. Models with different `weights` make different KV
  // from the same tokens, even if their shapes are equal.
  SimulatedBackend(ModelConfig model, DeviceShape device, int64_t blocks, uint64_t weights = 0);

  const KvLayout& kv_layout() const { return layout_; }
  // Time that Forward(batch) would take on the device.
  absl::Duration TimeOf(const Batch& batch) const { return StepTime(device_, WorkOf(model_, batch)); }
  // Time to copy `blocks` blocks between the device and the host.
  absl::Duration CopyTimeOf(int64_t blocks) const { return CopyTime(model_, device_, blocks); }
  // Does what Backend::Forward does, but without time. A row of logits is 1 at one token and 0
  // elsewhere, so greedy decoding takes the token that the hash of the last position selects. The
  // view is valid until the next Forward.
  LogitsView Forward(const Batch& batch);

  // The KV blocks, [blocks, kBlockWords] words, for code that moves blocks.
  std::span<std::byte> slab() { return std::as_writable_bytes(std::span(slab_)); }
  static constexpr int64_t BlockBytes() { return kBlockWords * static_cast<int64_t>(sizeof(uint64_t)); }
  // Copies block `source` of `from` into block `target`, as a push of the whole block does.
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
