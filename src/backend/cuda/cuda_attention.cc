#include "backend/cuda/cuda_attention.h"

#include <algorithm>
#include <bit>

#include "base/status.h"

namespace baton {
namespace {

constexpr int kHopper = 90;

}  // namespace

CudaAttention::CudaAttention(const ModelConfig& config, const CudaKvKernels& kernels, bool same_bits, int capability)
    : kernels_(kernels),
      heads_(static_cast<int32_t>(config.heads)),
      kv_heads_(static_cast<int32_t>(config.kv_heads)),
      head_dim_(static_cast<int32_t>(config.head_dim)),
      same_bits_(same_bits),
      prefill_kernel_(capability == kHopper ? cuda::PrefillKernel::kWgmma : cuda::PrefillKernel::kMma) {}

absl::Status CudaAttention::Prepare(const cuda::PagedKv& kv) {
  RETURN_IF_ERROR(CudaStatus(cuda::MakeDecodeGrid(kv_heads_, head_dim_, &grid_), "device"));
  if (prefill_kernel_ != cuda::PrefillKernel::kWgmma) return absl::OkStatus();
  return CudaStatus(kernels_.make_tensor_map(kv, &tensor_map_), "describing the KV blocks to the device");
}

absl::Status CudaAttention::Plan(std::span<const cuda::AttentionSlice> slices, int64_t rows, UploadBuffer& upload) {
  prefill_.clear();
  decode_.clear();
  for (const cuda::AttentionSlice& slice : slices) {
    (slice.rows > 1 || same_bits_ ? prefill_ : decode_).push_back(slice);
  }
  const int32_t queries = cuda::QueriesPerTile(prefill_kernel_, head_dim_, heads_ / kv_heads_);
  const std::vector<cuda::AttentionSlice> tiles = cuda::PlanQueryTiles(prefill_, queries);
  RETURN_IF_ERROR(upload.Add(std::span(tiles), query_tiles_));
  return PlanDecode(rows, upload);
}

absl::Status CudaAttention::PlanDecode(int64_t rows, UploadBuffer& upload) {
  partials_ = cuda::PlanHistorySplits(decode_, grid_, splits_);
  const size_t launched = rows > 0 && !splits_.empty() ? std::bit_ceil(splits_.size()) : splits_.size();
  RETURN_IF_ERROR(upload.Add(std::span<const cuda::AttentionSlice>(decode_), decode_slices_, rows));
  ASSIGN_OR_RETURN(const std::span<cuda::HistorySplit> space,
                   upload.Reserve(static_cast<int64_t>(launched), uploaded_splits_));
  std::fill(std::copy(splits_.begin(), splits_.end(), space.begin()), space.end(), cuda::HistorySplit{});
  return absl::OkStatus();
}

absl::Status CudaAttention::Reserve(cudaStream_t stream) {
  const int64_t bytes = cuda::DecodeWorkspaceBytes(heads_, kv_heads_, head_dim_, partials_);
  if (bytes <= workspace_.capacity()) return absl::OkStatus();
  return workspace_.ReserveZeroed(2 * bytes, "partial results of attention", stream);
}

cudaError_t CudaAttention::Run(cuda::AttentionArgs args, cudaStream_t stream) const {
  if (query_tiles_.size() > 0) {
    args.slices = query_tiles_.data();
    const cudaError_t error = kernels_.prefill_attention(args, static_cast<int32_t>(query_tiles_.size()),
                                                         prefill_kernel_, &tensor_map_, stream);
    if (error != cudaSuccess) return error;
  }
  if (uploaded_splits_.size() == 0) return cudaSuccess;
  args.slices = decode_slices_.data();
  return kernels_.decode_attention(args, uploaded_splits_.data(), static_cast<int32_t>(uploaded_splits_.size()),
                                   workspace_.data(), stream);
}

void CudaAttention::Describe(std::vector<int64_t>& sizes, std::vector<const void*>& addresses) const {
  sizes.insert(sizes.end(), {query_tiles_.size(), uploaded_splits_.size()});
  addresses.insert(addresses.end(), {query_tiles_.data(), decode_slices_.data(), uploaded_splits_.data(),
                                     static_cast<const void*>(workspace_.data())});
}

}  // namespace baton
