// clang-format off
#include "backend/cpu/kernels.h"
#include "backend/cpu/simd_portable.h"  // first: the kernels use its vector type
#include "backend/cpu/exp2.inl"
#include "backend/cpu/linear.inl"
#include "backend/cpu/lanes_portable.h"
#include "backend/cpu/attention.inl"
#include "backend/cpu/elementwise.inl"
// clang-format on

namespace baton {

const KernelTable kPortableKernels = {
    .name = "portable",
    .bf16_format = WeightFormat::kBf16,
#include "backend/cpu/kernel_table.inl"
};

}  // namespace baton
