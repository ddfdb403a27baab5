// clang-format off
#include "backend/cpu/kernels.h"
#include "backend/cpu/simd_avx512.h"  // first: the kernels use its vector type
#include "backend/cpu/exp2.inl"
#include "backend/cpu/linear.inl"
#include "backend/cpu/lanes_avx512.h"
#include "backend/cpu/attention.inl"
#include "backend/cpu/elementwise.inl"
// clang-format on

namespace baton {

const KernelTable kAvx512Bf16Kernels = {
    .name = "avx512bf16",
    .bf16_format = WeightFormat::kBf16Pairs,
#include "backend/cpu/kernel_table.inl"
};

}  // namespace baton
