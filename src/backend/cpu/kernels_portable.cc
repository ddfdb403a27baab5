// clang-format off
#include "backend/cpu/kernels.h"
#include "backend/cpu/simd_portable.h"  // first: the kernels build on its vector type
#include "backend/cpu/exp.inl"
#include "backend/cpu/linear.inl"
// clang-format on

namespace baton {

const KernelTable kPortableKernels = {
    .name = "portable",
    .bf16_format = WeightFormat::kBf16,
#include "backend/cpu/kernel_table.inl"
};

}  // namespace baton
