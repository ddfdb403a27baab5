// The operations of a forward pass on CPU threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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

// Activations between projections are fp32, or bf16 where the kernels multiply pairs of bf16; the hidden state, q, k, v
// and logits are always fp32.
class CpuOps final : public Ops {
 public:
  // `kernels`, `pool`, the slab and the communicator must outlive it. The slab holds blocks of `layout`, that of the
  // config. With a communicator (null: none) the weights are one rank's, as ShardWeights gives them.
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

 private:
  // A weight as Pack left it: one of these.
  struct Packed {
    PackedWeight matrix;
    std::vector<float> vector;
    Buffer<std::byte> table;  // as in the file, [vocab, hidden]
  };

  int64_t rows() const { return static_cast<int64_t>(positions_.size()); }
  int64_t QkvColumns() const { return (config_.heads + 2 * config_.kv_heads) * config_.head_dim; }
  const float* Vector(WeightId id) const { return weights_[id.value()].vector.data(); }
  const PackedWeight& Matrix(WeightId id) const { return weights_[id.value()].matrix; }
  Activations Operand(const std::byte* data, int64_t columns) const { return {data, columns, rows()}; }
  Activations Input(const LinearStep& step);
  LinearOutput Output(const LinearStep& step);
  Activations NormaliseHidden(WeightId norm);
  LogitsView JoinLogits(const float* part);
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
  WeightMemory weight_memory_;  // of the matrices
  std::vector<Packed> weights_;
  RopeTable rope_;
  CpuAttention attention_;

  // The batch: its rows, and where the k and v of each go.
  std::vector<AttentionSlice> slices_;
  std::vector<const std::byte*> blocks_;  // the slices' block tables, one after another
  std::vector<int64_t> logit_rows_;       // last rows of the slices that want logits
  std::vector<TokenId> tokens_;           // [rows]
  std::vector<int32_t> positions_;        // [rows]
  std::vector<std::byte*> row_blocks_;    // [rows]

  // Activations, [rows, columns]. Inputs of projections are bytes: bf16 or fp32.
  Buffer<float> hidden_, qkv_, logits_;
  Buffer<float> joined_logits_;   // of all ranks, at the first
  Buffer<float> unrounded_rows_;  // [threads, hidden], a normalised row before it becomes bf16
  Buffer<std::byte> normalised_, attended_, gated_;
};

}  // namespace baton
