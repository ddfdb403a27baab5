// The operations of a forward pass on a CUDA device. Each call enqueues work. Only Logits, and
// calls whose memory grows, wait for the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/batch_upload.h"
#include "backend/cuda/cuda_attention.h"
#include "backend/cuda/cuda_matmul.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/decode_graphs.h"
#include "backend/cuda/device_communicator.h"
#include "backend/cuda/kv_kernels.h"
#include "backend/cuda/pass_output.h"
#include "backend/cuda/projection_tuner.h"
#include "kernels/paged_kv.h"
#include "kv/block_layout.h"
#include "model/config.h"
#include "model/forward.h"
#include "model/ops.h"
#include "model/shard.h"

namespace baton {

// The slab, the stream, the matmul and the communicator must outlive the CudaOps.
struct CudaOpsOptions {
  bool same_bits = false;
  // Compute capability of the device, 10 * major + minor.
  int capability = 0;
  KvLayout layout;  // that of the config
  std::span<std::byte> slab;
  cudaStream_t stream = nullptr;
  CudaMatmul* matmul = nullptr;        // computes the projections
  std::span<const TokenId> unnamed{};  // ids whose logits are -inf
  // The communicator of this rank. Null if there is no group.
  DeviceCommunicator* communicator = nullptr;
};

// Weights and activations are bf16. The hidden state and logits are fp32. After an operation has
// failed, the rest of the pass does nothing, and status() returns the error. Not thread-safe.
class CudaOps final : public Ops {
 public:
  // With a communicator, the weights are one rank's part (ShardWeights).
  static absl::StatusOr<std::unique_ptr<CudaOps>> Create(const ModelConfig& config, const CudaOpsOptions& options);

  absl::StatusOr<WeightId> Pack(const WeightSource& source) override;
  absl::Status Begin(const Batch& batch) override { return BeginBatch(batch, /*decode_rows=*/0); }
  void Embed(WeightId table) override;
  void Linear(const LinearStep& step) override;
  void StoreKv(int64_t layer, const std::optional<QkNorm>& norm) override;
  void Attend(int64_t layer) override;
  void KeepLogitRows() override;
  absl::StatusOr<LogitsView> Logits(WeightId norm, WeightId head) override;

  // Begins a decode step: a batch of one token for each sequence, all of which want logits, padded
  // to `rows` rows.
  //
  // - The operations that follow only enqueue work, so they can be captured. They are those of a
  //   pass, without KeepLogitRows and with ComputeLogits in place of Logits.
  // - The previous decode step may still run if it chose all its tokens (PassOutput::chose_all). If
  //   memory for `rows` rows is reserved, slices may follow it (SequenceSlice::follows).
  absl::Status BeginDecode(const Batch& batch, int64_t rows);
  // Begins the same batch again after a capture that failed.
  void ClearError() { status_ = absl::OkStatus(); }
  // Enqueues the logits, which stay on the device.
  void ComputeLogits(WeightId norm, WeightId head);
  // Enqueues the choice of tokens from these logits, and the copies of output() to the host.
  // Returns status().
  absl::Status Choose();
  // The output of the pass on the host.
  PassOutput& output() { return output_; }
  // Returns the sizes and addresses on which the captured operations of the present decode step
  // depend.
  CapturedStep Describe() const;

  // Returns the bytes of device memory for the activations of `rows` rows, `kept` of which have
  // logits.
  static int64_t ActivationBytes(const ModelConfig& config, int64_t rows, int64_t kept);
  // Reserves memory for the activations of `rows` rows, `kept` of which have logits.
  absl::Status ReserveActivations(int64_t rows, int64_t kept);
  // Returns the model's projections in steps up to `step`, for a ProjectionTuner. They are valid
  // until activations grow. REQUIRES: activations for such a step are reserved.
  std::vector<Projection> Projections(const PackedModel& model, const StepLimits& step) const;

  // The first error since Begin.
  const absl::Status& status() const { return status_; }

 private:
  using Bf16 = cuda::Bf16;
  // A weight on the device, row-major as in the file, with its parts stacked.
  struct Packed {
    DeviceBuffer<Bf16> values;  // [rows, cols]
    DeviceBuffer<Bf16> bias;    // [rows], or empty
    int64_t rows = 0, cols = 0;
  };

  CudaOps(const ModelConfig& config, const CudaOpsOptions& options, const CudaKvKernels& kv_kernels);
  static int64_t QkvColumns(const ModelConfig& config) {
    return (config.heads + 2 * config.kv_heads) * config.head_dim;
  }
  int64_t QkvColumns() const { return QkvColumns(config_); }
  bool IsTable(const WeightSource& source) const;
  const Packed& At(WeightId id) const { return weights_[id.value()]; }
  cuda::PagedKv Kv(int64_t layer) const;
  absl::Status BeginBatch(const Batch& batch, int64_t decode_rows);
  void Normalise(WeightId norm);
  const Bf16* Input(const LinearStep& step);
  // Returns true if projections add to the hidden state instead of replacing it. Only the first
  // rank adds, so that the sum over ranks contains the old state once.
  bool AddsToHidden() const { return shard_.rank == 0; }
  bool InGroup() const { return options_.communicator != nullptr; }
  // Returns the elements from row to row of logits with `columns` columns.
  static int64_t StrideOf(int64_t columns) { return (columns + 3) / 4 * 4; }
  int64_t LogitsStride() const { return StrideOf(config_.vocab); }
  int64_t PartStride() const { return StrideOf(VocabRange(shard_, config_).size()); }
  void SumHidden();
  void JoinLogits();
  absl::Status UploadUnnamed();
  void MaskUnnamed();
  void Multiply(const Packed& weight, const Bf16* input, void* output, bool fp32_output, bool add,
                int64_t output_stride = 0);
  void MultiplySwiGlu(const Packed& weight, const Bf16* input);
  // Runs `enqueue`, which returns a cudaError_t, unless an operation failed before.
  template <typename Enqueue>
  void Do(const char* what, Enqueue enqueue);

  const ModelConfig config_;
  const CudaOpsOptions options_;
  const CudaKvKernels& kv_kernels_;
  const cudaStream_t stream_;
  const Shard shard_;
  std::vector<Packed> weights_;
  struct Table {
    WeightId id;
    const void* source;
  };
  std::optional<Table> table_;  // the embedding
  // [context, head_dim], the table of kernels/rope_store.h.
  DeviceBuffer<float> rope_;
  absl::Status status_;

  CudaAttention attention_, kept_attention_;
  PassOutput output_;
  // Refers to the three members above.
  BatchUpload upload_;

  // Activations, [rows, columns].
  DeviceBuffer<float> hidden_, kept_hidden_, logits_;
  // In a group, the logits of this rank's part of the vocabulary.
  DeviceBuffer<float> part_logits_;
  // Ids whose logits are -inf. Empty for a rank without logits.
  DeviceBuffer<TokenId> unnamed_;
  DeviceBuffer<Bf16> qkv_, kept_qkv_, normalised_, attended_, gate_up_, gated_;
  // The rows with which the pass continues.
  bool only_kept_ = false;
  int64_t rows_ = 0;
  float* current_hidden_ = nullptr;
  Bf16* current_qkv_ = nullptr;
};

}  // namespace baton
