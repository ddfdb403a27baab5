// clang-format off
#include "backend/cpu/kernels.h"
#include "backend/cpu/simd_avx2.h"  // first: the kernels use its vector type
#include "backend/cpu/exp2.inl"
#include "backend/cpu/linear.inl"
#include "backend/cpu/lanes_avx2.h"
#include "backend/cpu/attention.inl"
#include "backend/cpu/elementwise.inl"
// clang-format on

namespace baton {

const KernelTable kAvx2Kernels = {
    .name = "avx2",
    .bf16_format = WeightFormat::kBf16,
#include "backend/cpu/kernel_table.inl"
};

}  // namespace baton
