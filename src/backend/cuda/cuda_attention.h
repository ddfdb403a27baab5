// Attention of a ragged batch: which kernel takes which slice, planned once and run for every layer.
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

// Slices of one row go to the decode kernel, which splits their history; longer ones to the prefill kernel. With
// `same_bits` all go to the prefill kernel, so that a token's result does not depend on the chunk that it came in.
class CudaAttention {
 public:
  // `capability` of the device: 10 * major + minor. The kernels must outlive it.
  CudaAttention(const ModelConfig& config, const CudaKvKernels& kernels, bool same_bits, int capability);

  // Any layer's view of the slab.
  absl::Status Prepare(const cuda::PagedKv& kv);
  // Adds what Run needs to the upload. With `rows` > 0 the batch is padded to so many slices of one row: plans of about
  // the same size launch the same and lie in the same place, so that a captured graph serves them all. Launches of the
  // plan before may still be on the device.
  absl::Status Plan(std::span<const cuda::AttentionSlice> slices, int64_t rows, UploadBuffer& upload);
  // Memory for what was planned.
  absl::Status Reserve(cudaStream_t stream);
  // `args.slices` is filled in here.
  cudaError_t Run(cuda::AttentionArgs args, cudaStream_t stream) const;

  // What a captured Run depends on: the sizes of its launches and the memory that they read.
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
