// The attention of a ragged batch on a CUDA device: it chooses a kernel for each slice once, and
// runs the choice for every layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/kv_kernels.h"
#include "backend/cuda/upload.h"
#include "kernels/decode_attention.h"
#include "kernels/prefill_attention.h"
#include "model/config.h"

namespace baton {

// Slices of one row run in the decode kernel, which splits their history. Longer slices run in the
// prefill kernel. With `same_bits`, all slices run in the prefill kernel, so that a token's result
// does not depend on its chunk. Not thread-safe.
class CudaAttention {
 public:
  // `capability` is the device's compute capability, 10 * major + minor. The kernels must outlive
  // the CudaAttention.
  CudaAttention(const ModelConfig& config, const CudaKvKernels& kernels, bool same_bits, int capability);

  // Called once, before the first Plan. `kv` is any layer's view of the slab.
  absl::Status Prepare(const cuda::PagedKv& kv);
  // Plans the attention of a batch, and adds the lists that Run needs to the upload. If `rows` > 0,
  // the batch is padded to that number of slices of one row. Plans of similar size then have equal
  // launches and equal addresses, so that one captured graph serves them all. Launches of the
  // previous plan may still run on the device.
  absl::Status Plan(std::span<const cuda::AttentionSlice> slices, int64_t rows, UploadBuffer& upload);
  // Reserves memory for the planned batch.
  absl::Status Reserve(cudaStream_t stream);
  // Enqueues the planned attention for one layer. Sets `args.slices` itself.
  cudaError_t Run(cuda::AttentionArgs args, cudaStream_t stream) const;

  // Appends the sizes of Run's launches and the addresses that they read, on which a captured Run
  // depends.
  void Describe(std::vector<int64_t>& sizes, std::vector<const void*>& addresses) const;

 private:
  absl::Status PlanDecode(int64_t rows, UploadBuffer& upload);

  const CudaKvKernels& kernels_;
  const int32_t heads_, kv_heads_, head_dim_;
  const bool same_bits_;
  const cuda::PrefillKernel prefill_kernel_;
  cuda::KvTensorMap tensor_map_;

  std::vector<cuda::AttentionSlice> prefill_, decode_;  // the batch's slices
  cuda::DecodeGrid grid_;
  std::vector<cuda::HistorySplit> splits_;
  int32_t partials_ = 0;
  UploadedList<cuda::AttentionSlice> query_tiles_, decode_slices_;
  UploadedList<cuda::HistorySplit> uploaded_splits_;
  DeviceBuffer<std::byte> workspace_;
};

}  // namespace baton
