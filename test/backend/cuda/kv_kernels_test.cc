#include "backend/cuda/kv_kernels.h"

#include "catch.h"

namespace baton {
namespace {

TEST_CASE("FindCudaKvKernels returns all kernels for bf16 blocks and refuses f32 blocks") {
  const auto bf16 = FindCudaKvKernels(KvFormat::kBf16);
  REQUIRE(bf16.ok());
  CHECK((*bf16)->format == KvFormat::kBf16);
  CHECK(((*bf16)->rope_store && (*bf16)->make_tensor_map && (*bf16)->prefill_attention && (*bf16)->decode_attention));
  CHECK(absl::IsInvalidArgument(FindCudaKvKernels(KvFormat::kF32).status()));
}

}  // namespace
}  // namespace baton
