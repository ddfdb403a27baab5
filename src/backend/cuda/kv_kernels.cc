#include "backend/cuda/kv_kernels.h"

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr CudaKvKernels kRows[] = {
    {.format = KvFormat::kBf16,
     .rope_store = cuda::LaunchRopeStore,
     .make_tensor_map = cuda::MakeKvTensorMap,
     .prefill_attention = cuda::LaunchPrefillAttention,
     .decode_attention = cuda::LaunchDecodeAttention},
};

}  // namespace

absl::StatusOr<const CudaKvKernels*> FindCudaKvKernels(KvFormat format) {
  for (const CudaKvKernels& row : kRows) {
    if (row.format == format) return &row;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("CUDA backend: no kernels compute with KV blocks of ", RowOf(format).name));
}

}  // namespace baton
