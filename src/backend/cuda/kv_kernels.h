// The kernels that read or write KV blocks, by the format of the blocks.
#pragma once

#include "absl/status/statusor.h"
#include "kernels/decode_attention.h"
#include "kernels/prefill_attention.h"
#include "kernels/rope_store.h"
#include "kv/kv_format.h"

namespace baton {

// The kernels of one KV format.
struct CudaKvKernels {
  KvFormat format;
  decltype(&cuda::LaunchRopeStore) rope_store;
  decltype(&cuda::MakeKvTensorMap) make_tensor_map;
  decltype(&cuda::LaunchPrefillAttention) prefill_attention;
  decltype(&cuda::LaunchDecodeAttention) decode_attention;
};

// Returns the kernels of `format`, which live as long as the process. INVALID_ARGUMENT: no kernels
// support that format.
absl::StatusOr<const CudaKvKernels*> FindCudaKvKernels(KvFormat format);

}  // namespace baton
