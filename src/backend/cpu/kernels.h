// The one visible table of CPU kernels: what a forward pass calls, filled once per instruction set.
//
// Each kernels_<isa>.cc includes simd_<isa>.h and then the same *.inl files, compiled with that set's flags. Nothing
// with external linkage may be instantiated there (no inline std:: functions, no templates outside anonymous
// namespaces): the linker keeps one copy of such a function, and it could be one this machine cannot run.
#pragma once

#include <cstdint>

namespace baton {

// Bit pattern of a bfloat16: the upper half of a float.
using Bf16 = uint16_t;

// Outputs of a projection that lie side by side in a packed weight.
inline constexpr int64_t kPanelWidth = 16;

// How a weight [n, k] is packed; rows beyond n and columns beyond k are zeros.
enum class WeightFormat {
  kF32,        // float [n/16][k][16], activations float
  kBf16,       // Bf16 [n/16][k][16], activations float
  kBf16Pairs,  // Bf16 [n/16][k/2][16][2], activations Bf16 with k padded to even
};

// y[rows, panels of the range] = x W^T + bias. Row r of y depends on row r of x alone, bit for bit.
struct LinearArgs {
  const void* x = nullptr;       // [rows, k], float or Bf16 as the weight's format says
  int64_t x_stride = 0;          // elements between rows
  int64_t rows = 0;              // >= 0
  const void* panels = nullptr;  // the whole packed weight
  int64_t k = 0;                 // as packed: even for kBf16Pairs
  int64_t n = 0;                 // outputs; columns of y at and beyond n are not written
  const float* bias = nullptr;   // [n rounded up to 16], or null for none
  float* y = nullptr;            // [rows, n]
  int64_t y_stride = 0;          // elements between rows
  int64_t panel_begin = 0;       // outputs [16 * panel_begin, 16 * panel_end) are computed
  int64_t panel_end = 0;
};

struct KernelTable {
  const char* name;          // "portable", "avx2", "avx512", "avx512bf16"
  WeightFormat bf16_format;  // how this table wants bf16 weights packed

  // --- projections (linear.inl)
  void (*linear_f32)(const LinearArgs& args);   // WeightFormat::kF32
  void (*linear_bf16)(const LinearArgs& args);  // bf16_format
  // Rounds to nearest even; NaN stays NaN.
  void (*round_to_bf16)(const float* x, int64_t count, Bf16* out);
};

extern const KernelTable kPortableKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512Bf16Kernels;

}  // namespace baton
