// The operations of a forward pass on a CUDA device. Each call enqueues; what waits for the device is Fetch, with it
// Logits of a pass that is not a decode step, and memory that grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_attention.h"
#include "backend/cuda/cuda_matmul.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_sampling.h"
#include "backend/cuda/device_communicator.h"
#include "backend/cuda/upload.h"
#include "kernels/paged_kv.h"
#include "kv/block_layout.h"
#include "model/config.h"
#include "model/forward.h"
#include "model/ops.h"
#include "model/shard.h"

namespace baton {

struct CudaOpsOptions {
  bool same_bits = false;
  int capability = 0;  // of the device, 10 * major + minor
  KvLayout layout;     // that of the config
  std::span<std::byte> slab;
  cudaStream_t stream = nullptr;
  DeviceCommunicator* communicator = nullptr;  // of the rank that this is; null: there is no group
};

// Weights and activations are bf16, the hidden state and logits fp32. After an operation failed the rest of the pass
// does nothing, and status() says why.
class CudaOps final : public Ops {
 public:
  // The slab, the stream and the communicator must outlive it. With a communicator the weights are one rank's, as
  // ShardWeights gives them.
  static absl::StatusOr<std::unique_ptr<CudaOps>> Create(const ModelConfig& config, const CudaOpsOptions& options);

  absl::StatusOr<WeightId> Pack(const WeightSource& source) override;
  absl::Status Begin(const Batch& batch) override;
  // Begin for a batch of one token for each sequence, all of which want logits, filled up to `rows`: the operations
  // that follow, from a Begin that does nothing to Logits, can be captured, and Logits gives nothing. Choose does.
  // The decode step before may still be under way where it has chosen all (chose_all), and slices may follow it
  // (SequenceSlice::follows) where rows are reserved.
  absl::Status BeginDecode(const Batch& batch, int64_t rows);
  // What follows on the logits: tokens are chosen and copied to the host, as are rows that are not sampled. Returns
  // status().
  absl::Status Choose();
  void EndDecode() { decode_rows_ = 0; }
  // Whether memory for so many rows was taken: else it is, and what the last step chose is lost.
  bool IsReserved(int64_t rows) const { return rows <= sampling_.rows_reserved(); }
  // Of the last Choose. Chose all: and nothing else but tokens is fetched.
  bool chose_all() const { return Samples() && sampling_.any() && sampling_.all(); }
  int choice() const { return sampling_.choice(); }
  // Whether the device has got beyond that Choose: the last one, or the one before, if that chose all. That it has not
  // is an error to CUDA, which must not be left for the next launch to find.
  bool IsOver(int choice) const { return CudaStatus(cudaEventQuery(chosen_[choice].get()), "event").ok(); }
  // Waits for that. An error is the device's.
  absl::StatusOr<LogitsView> Fetch(int choice);
  // What captured operations depend on: sizes of launches, and memory.
  struct Captured {
    std::vector<int64_t> sizes;
    std::vector<const void*> addresses;
  };
  Captured Describe() const;
  void Embed(WeightId table) override;
  void Linear(const LinearStep& step) override;
  void StoreKv(int64_t layer, const std::optional<QkNorm>& norm) override;
  void Attend(int64_t layer) override;
  void KeepLogitRows() override;
  absl::StatusOr<LogitsView> Logits(WeightId norm, WeightId head) override;

  // Of device memory, for activations of so many rows, `kept` of which have logits.
  static int64_t ActivationBytes(const ModelConfig& config, int64_t rows, int64_t kept);
  absl::Status ReserveActivations(int64_t rows, int64_t kept);
  // Chooses how the model's projections are computed in steps up to this one, so that none has to wait for it. Takes
  // seconds. REQUIRES: activations for so many rows.
  absl::Status Tune(const PackedModel& model, const StepLimits& step);

  size_t cublas_version() const { return matmul_->version(); }
  // The first error since Begin.
  const absl::Status& status() const { return status_; }

 private:
  using Bf16 = cuda::Bf16;
  // A weight on the device, row-major as in the file, its parts stacked.
  struct Packed {
    DeviceBuffer<Bf16> values;  // [rows, cols]
    DeviceBuffer<Bf16> bias;    // [rows], or empty
    int64_t rows = 0, cols = 0;
  };

  CudaOps(const ModelConfig& config, const CudaOpsOptions& options);
  static int64_t QkvColumns(const ModelConfig& config) {
    return (config.heads + 2 * config.kv_heads) * config.head_dim;
  }
  int64_t QkvColumns() const { return QkvColumns(config_); }
  bool IsTable(const WeightSource& source) const;
  const Packed& At(WeightId id) const { return weights_[id.value()]; }
  cuda::PagedKv Kv(int64_t layer) const;
  void Collect(const Batch& batch);
  absl::Status TakeUp(const Batch& batch);
  absl::Status AddLists(const Batch& batch);
  absl::Status Upload();
  absl::Status AddBlockTables(const Batch& batch);
  void Normalise(WeightId norm);
  const Bf16* Input(const LinearStep& step);
  // Of ranks, the first alone adds to what was there, so that their sum has it once.
  bool AddsToHidden() const { return shard_.rank == 0; }
  bool InGroup() const { return options_.communicator != nullptr; }
  bool Samples() const { return shard_.rank == 0; }  // the first has the logits
  // Elements from row to row of so many logits.
  static int64_t StrideOf(int64_t columns) { return (columns + 3) / 4 * 4; }
  int64_t LogitsStride() const { return StrideOf(config_.vocab); }
  int64_t PartStride() const { return StrideOf(VocabRange(shard_, config_).size()); }
  void SumHidden();
  void JoinLogits();
  void Multiply(const Packed& weight, const Bf16* input, void* output, bool fp32_output, bool add,
                int64_t output_stride = 0);
  void MultiplySwiGlu(const Packed& weight, const Bf16* input);
  void CopyLogits();
  // Runs `enqueue`, which gives a cudaError_t, unless something failed before.
  template <typename Enqueue>
  void Do(const char* what, Enqueue enqueue);

  const ModelConfig config_;
  const CudaOpsOptions options_;
  const cudaStream_t stream_;
  const Shard shard_;
  std::unique_ptr<CudaMatmul> matmul_;
  std::vector<Packed> weights_;
  struct Table {
    WeightId id;
    const void* source;
  };
  std::optional<Table> table_;  // the embedding
  DeviceBuffer<float> rope_;    // [context, head_dim], kernels/rope_store.h
  absl::Status status_;

  // The batch on the host, as Begin took it up.
  struct Rows {
    std::vector<int32_t> tokens, positions;    // [rows]
    std::vector<int64_t> slots;                // [rows], kernels/rope_store.h
    std::vector<cuda::AttentionSlice> slices;  // of all rows
    std::vector<cuda::AttentionSlice> kept;    // of the rows that want logits, each alone
    std::vector<int32_t> kept_rows;            // where they are among all
    std::vector<const SampleSpec*> specs;      // of kept
    std::vector<int32_t> follows;              // of all slices; empty if none does

    void Clear() {  // keeps the memory: this is every step
      for (auto* list : {&tokens, &positions, &kept_rows, &follows}) list->clear();
      for (auto* list : {&slices, &kept}) list->clear();
      slots.clear();
      specs.clear();
    }
  } batch_;
  UploadBuffer upload_;
  UploadedList<int32_t> tokens_, positions_, kept_rows_, block_tables_, follows_;
  UploadedList<int64_t> slots_;
  CudaAttention attention_, kept_attention_;
  CudaSampling sampling_;

  // Activations, [rows, columns].
  DeviceBuffer<float> hidden_, kept_hidden_, logits_;
  DeviceBuffer<float> part_logits_;  // in a group: of the rank's tokens
  DeviceBuffer<Bf16> qkv_, kept_qkv_, normalised_, attended_, gate_up_, gated_;
  PinnedBuffer<float> host_logits_;
  CudaEvent chosen_[2];      // by choice
  int64_t decode_rows_ = 0;  // > 0: between BeginDecode and EndDecode
  // Of the rows that the pass goes on with.
  bool only_kept_ = false;
  int64_t rows_ = 0;
  float* now_hidden_ = nullptr;
  Bf16* now_qkv_ = nullptr;
};

}  // namespace baton
