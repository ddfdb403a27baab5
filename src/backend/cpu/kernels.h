// The one visible table of CPU kernels: what a forward pass calls, filled once per instruction set.
//
// Each kernels_<isa>.cc includes simd_<isa>.h and then the same *.inl files, compiled with that set's flags. Nothing
// with external linkage may be instantiated there (no inline std:: functions, no templates outside anonymous
// namespaces): the linker keeps one copy of such a function, and it could be one this machine cannot run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "backend/cpu/attention.h"
#include "kv/kv_format.h"

namespace baton {

// Bit pattern of a bfloat16: the upper half of a float.
using Bf16 = uint16_t;

// Floats of a vector, whatever the registers.
inline constexpr int64_t kLanes = 16;
// Outputs of a projection that lie side by side in a packed weight: two vectors, so that a tile reads one stream.
inline constexpr int64_t kPanelOutputs = 2 * kLanes;
// Rows that pass over the panels together: their activations stay in the second-level cache meanwhile. A multiple of
// every tile's rows, and so the unit to split rows by.
inline constexpr int64_t kLinearRows = 96;

// How a weight [n, k] is packed; rows beyond n and columns beyond k are zeros.
enum class WeightFormat {
  kF32,        // float [n/32][k][32], activations float
  kBf16,       // Bf16 [n/32][k][16][2], outputs i and i + 16 side by side, activations float
  kBf16Pairs,  // Bf16 [n/32][k/2][32][2], activations Bf16 with k padded to even
};

// What becomes of the sums z = x W^T + bias.
enum class LinearThen {
  kStore,   // y = z, float [rows, n]
  kAdd,     // y += z, float [rows, n]: the residual connection
  kSwiGlu,  // y = silu(gate) * up, [rows, n / 2]: a panel of z is 16 gates, then their 16 ups (PackedWeight::GateUp)
};

// Computes the outputs of panels [panel_begin, panel_end) for all rows. Row r of y depends on row r of x and on the
// weight alone, bit for bit. Panels and rows may be split over threads at will.
struct LinearArgs {
  const void* x = nullptr;  // [rows, k], float or Bf16 as the weight's format says
  int64_t x_stride = 0;     // elements between rows, even for kBf16Pairs
  int64_t rows = 0;

  const void* panels = nullptr;  // the whole packed weight
  int64_t k = 0;                 // as packed: even for kBf16Pairs
  int64_t n = 0;                 // outputs; columns of y at and beyond n (kSwiGlu: n / 2) are not written
  const float* bias = nullptr;   // [n rounded up to 32], or null for none
  int64_t panel_begin = 0;
  int64_t panel_end = 0;

  LinearThen then = LinearThen::kStore;
  void* y = nullptr;
  int64_t y_stride = 0;    // elements between rows
  bool y_is_bf16 = false;  // only for kSwiGlu: y is Bf16, as the next projection wants it
};

// Kernels for K and V of one format, which lie in KvOrder::kPairs.
struct CpuKvKernels {
  void (*attend)(const AttentionArgs& args);  // attention.inl
  // Writes one head's k or v into slot [0, 16) of its place in a block (kv/block_layout.h). Touches
  // nothing else there, because other threads may store other slots.
  void (*store_k)(const float* k, int64_t head_dim, int64_t slot, std::byte* out);
  void (*store_v)(const float* v, int64_t head_dim, int64_t slot, std::byte* out);
};

struct KernelTable {
  const char* name;          // "portable", "avx2", "avx512", "avx512bf16"
  WeightFormat bf16_format;  // how this table wants bf16 weights packed

  // --- projections (linear.inl)
  void (*linear_f32)(const LinearArgs& args);   // WeightFormat::kF32
  void (*linear_bf16)(const LinearArgs& args);  // bf16_format
  // Rounds to nearest even; NaN stays NaN. Denormals may become zeros, as pairs of bf16 multiply them.
  void (*round_to_bf16)(const float* x, int64_t count, Bf16* out);

  // --- K and V in blocks
  CpuKvKernels kv[std::size(kKvFormats)];  // by KvFormat
  const CpuKvKernels& Kv(KvFormat format) const { return kv[static_cast<size_t>(format)]; }

  // --- attention (attention.inl)
  // `from` is the span after those of `into`. width: head_dim rounded up to 16.
  void (*merge_attention)(const AttentionState& into, const AttentionState& from, int64_t rows, int64_t width);
  // values /= sum
  void (*finish_attention)(const AttentionState& state, int64_t rows, int64_t width);

  // --- rows (elementwise.inl)
  // out = x / sqrt(mean(x^2) + epsilon) * weight; out may be x.
  void (*rms_norm)(const float* x, const float* weight, float epsilon, int64_t count, float* out);
  // Turns `heads` adjacent heads in place by a row of RopeTable: head_dim / 2 cosines, then as many sines.
  void (*rope)(float* x, const float* turn, int64_t head_dim, int64_t heads);
};

extern const KernelTable kPortableKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512Bf16Kernels;

}  // namespace baton
