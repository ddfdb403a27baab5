// The operations of a forward pass on CPU threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backend/communicator.h"
#include "backend/cpu/buffer.h"
#include "backend/cpu/cpu_attention.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/packed_weight.h"
#include "backend/cpu/thread_pool.h"
#include "kv/block_layout.h"
#include "model/config.h"
#include "model/ops.h"
#include "model/rope.h"
#include "model/shard.h"

namespace baton {

// The hidden state, q, k, v and logits are fp32. The inputs of projections are bf16 if the
// kernels multiply pairs of bf16, else fp32.
class CpuOps final : public Ops {
 public:
  // `kernels`, `pool`, the slab and the communicator must outlive the CpuOps. The slab holds blocks
  // of `layout`, the layout of `config`. With a communicator, the weights are one rank's part
  // (ShardWeights). Null if there is no group.
  CpuOps(const ModelConfig& config, const KernelTable& kernels, ThreadPool& pool, const KvLayout& layout,
         std::span<std::byte> slab, Communicator* communicator = nullptr);

  absl::StatusOr<WeightId> Pack(const WeightSource& source) override;
  absl::Status Begin(const Batch& batch) override;
  void Embed(WeightId table) override;
  void Linear(const LinearStep& step) override;
  void StoreKv(int64_t layer, const std::optional<QkNorm>& norm) override;
  void Attend(int64_t layer) override;
  void KeepLogitRows() override;
  absl::StatusOr<LogitsView> Logits(WeightId norm, WeightId head) override;

  // Sets the logits of these ids to -inf in all passes. With a communicator, only rank 0 does.
  void Mask(std::vector<TokenId> ids) { masked_ = std::move(ids); }

 private:
  // A packed weight. Its form decides which member holds it.
  struct Packed {
    PackedWeight matrix;
    std::vector<float> vector;
    // As in the file, [vocab, hidden].
    Buffer<std::byte> table;
  };

  int64_t rows() const { return static_cast<int64_t>(positions_.size()); }
  int64_t QkvColumns() const { return (config_.heads + 2 * config_.kv_heads) * config_.head_dim; }
  const float* Vector(WeightId id) const { return weights_[id.value()].vector.data(); }
  const PackedWeight& Matrix(WeightId id) const { return weights_[id.value()].matrix; }
  Activations Operand(const std::byte* data, int64_t columns) const { return {data, columns, rows()}; }
  Activations Input(const LinearStep& step);
  LinearOutput Output(const LinearStep& step);
  Activations NormaliseHidden(WeightId norm);
  float* JoinLogits(float* part);
  void CopyTable(const Tensor& table, Buffer<std::byte>& copy);
  void ReserveActivations();
  void StoreRow(int64_t layer, int64_t row, const std::optional<QkNorm>& norm);

  const ModelConfig config_;
  const KernelTable& kernels_;
  ThreadPool& pool_;
  const KvLayout layout_;
  const std::span<std::byte> slab_;
  Communicator* const communicator_;
  const Shard shard_;
  const bool bf16_activations_;
  baton::Linear linear_;
  // Memory of all matrices.
  WeightMemory weight_memory_;
  std::vector<Packed> weights_;
  RopeTable rope_;
  CpuAttention attention_;

  // The rows of the batch, and the block into which each row's K and V go.
  std::vector<AttentionSlice> slices_;
  // The slices' block tables, one after another.
  std::vector<const std::byte*> blocks_;
  // The rows that want logits, and these rows as slices of a batch without other rows.
  std::vector<int64_t> logit_rows_;
  std::vector<AttentionSlice> logit_slices_;
  std::vector<TokenId> tokens_;         // [rows]
  std::vector<int32_t> positions_;      // [rows]
  std::vector<std::byte*> row_blocks_;  // [rows]

  // Activations, [rows, columns]. Inputs of projections are bytes, because they are bf16 or fp32.
  Buffer<float> hidden_, qkv_, logits_;
  // Logits of all ranks, at rank 0.
  Buffer<float> joined_logits_;
  std::vector<TokenId> masked_;
  // [threads, hidden], a normalised row before it is rounded to bf16.
  Buffer<float> unrounded_rows_;
  Buffer<std::byte> normalised_, attended_, gated_;
};

}  // namespace baton
