// The table of CPU kernels that a forward pass calls. Each instruction set has one table.
//
// Each kernels_<isa>.cc includes simd_<isa>.h and then the same *.inl files, and it is compiled
// with the flags of that instruction set. Nothing with external linkage may be instantiated there:
// no inline std:: functions, and no templates outside of anonymous namespaces. The linker keeps
// only one copy of such a function, and this machine may be unable to run that copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "backend/cpu/attention.h"
#include "kv/kv_format.h"

namespace baton {

// Bit pattern of a bfloat16: the upper half of a float.
using Bf16 = uint16_t;

// Floats of a vector, for every instruction set.
inline constexpr int64_t kLanes = 16;
// Outputs of a projection that lie side by side in a packed weight. They are two vectors, so that a
// tile reads one stream of memory.
inline constexpr int64_t kPanelOutputs = 2 * kLanes;
// Rows that a kernel multiplies with all panels before it takes the next rows. Their activations
// stay in the second-level cache. A multiple of every tile's rows, and so the unit for splitting
// rows.
inline constexpr int64_t kLinearRows = 96;

// The packing of a weight [n, k]. Rows beyond n and columns beyond k are zeros.
enum class WeightFormat {
  // Float [n/32][k][32]. Activations are float.
  kF32,
  // Bf16 [n/32][k][16][2] with outputs i and i + 16 side by side. Activations are float.
  kBf16,
  // Bf16 [n/32][k/2][32][2]. Activations are Bf16, with k padded to an even number.
  kBf16Pairs,
};

// The operation on the sums z = x W^T + bias.
enum class LinearThen {
  kStore,  // y = z, float [rows, n]
  kAdd,    // y += z, float [rows, n]: the residual connection
  // y = silu(gate) * up, [rows, n / 2]. A panel of z holds 16 gates and then their 16 ups
  // (PackedWeight::GateUp).
  kSwiGlu,
};

// The arguments of a projection that computes the outputs of panels [panel_begin, panel_end) for
// all rows. The bits of row r of y depend only on row r of x and on the weight. Panels and rows may
// therefore be split over threads in any way.
struct LinearArgs {
  // [rows, k], float or Bf16, depending on the weight's format.
  const void* x = nullptr;
  // Elements between rows. An even number for kBf16Pairs.
  int64_t x_stride = 0;
  int64_t rows = 0;

  const void* panels = nullptr;  // the whole packed weight
  // As packed. An even number for kBf16Pairs.
  int64_t k = 0;
  // Number of outputs. Columns of y from n on (kSwiGlu: from n / 2 on) are not written.
  int64_t n = 0;
  // [n rounded up to 32], or null if there is no bias.
  const float* bias = nullptr;
  int64_t panel_begin = 0;
  int64_t panel_end = 0;

  LinearThen then = LinearThen::kStore;
  void* y = nullptr;
  int64_t y_stride = 0;  // elements between rows
  // True if y is Bf16, the input type of the next projection. Only for kSwiGlu.
  bool y_is_bf16 = false;
};

// Kernels for K and V of one KV format, in KvOrder::kPairs.
struct CpuKvKernels {
  void (*attend)(const AttentionArgs& args);  // attention.inl
  // Writes one head's k or v into its slot in [0, 16) of a block (kv/block_layout.h). Writes no
  // other bytes, because other threads may store other slots at the same time.
  void (*store_k)(const float* k, int64_t head_dim, int64_t slot, std::byte* out);
  void (*store_v)(const float* v, int64_t head_dim, int64_t slot, std::byte* out);
};

// The kernels of one instruction set.
struct KernelTable {
  const char* name;          // "portable", "avx2", "avx512", "avx512bf16"
  WeightFormat bf16_format;  // packing of bf16 weights for this table

  // --- Projections (linear.inl).
  void (*linear_f32)(const LinearArgs& args);   // WeightFormat::kF32
  void (*linear_bf16)(const LinearArgs& args);  // bf16_format
  // Rounds to nearest even. NaN stays NaN. Denormals may become zeros, which is what the
  // multiplication of bf16 pairs makes of them.
  void (*round_to_bf16)(const float* x, int64_t count, Bf16* out);

  // --- K and V in blocks.
  // Indexed by KvFormat.
  CpuKvKernels kv[std::size(kKvFormats)];
  const CpuKvKernels& Kv(KvFormat format) const { return kv[static_cast<size_t>(format)]; }

  // --- Attention (attention.inl).
  // Merges `from` into `into`. `from` is the span after the spans of `into`. `width` is head_dim
  // rounded up to 16.
  void (*merge_attention)(const AttentionState& into, const AttentionState& from, int64_t rows, int64_t width);
  // Divides the values by the sums: values /= sum.
  void (*finish_attention)(const AttentionState& state, int64_t rows, int64_t width);

  // --- Rows (elementwise.inl).
  // out = x / sqrt(mean(x^2) + epsilon) * weight. `out` may be x.
  void (*rms_norm)(const float* x, const float* weight, float epsilon, int64_t count, float* out);
  // Rotates `heads` adjacent heads in place. `rotation` is a row of RopeTable: head_dim / 2 cosines
  // and then as many sines.
  void (*rope)(float* x, const float* rotation, int64_t head_dim, int64_t heads);
};

extern const KernelTable kPortableKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512Bf16Kernels;

}  // namespace baton
