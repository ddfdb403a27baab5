#include "backend/cpu/linear.h"

#include <algorithm>

#include "base/check.h"

namespace baton {
namespace {

// Shares per thread: enough that a preempted thread leaves its work to others, few enough to cost nothing.
constexpr int64_t kSharesPerThread = 4;

}  // namespace

Activations Linear::Prepare(const PackedWeight& weight, const float* x, int64_t rows, int64_t columns) {
  if (weight.format() != WeightFormat::kBf16Pairs) {
    BATON_CHECK(columns == weight.k(), "activations have the weight's columns");
    return {x, columns, rows};
  }
  const int64_t stride = weight.k();
  BATON_CHECK(columns == stride || columns == stride - 1, "activations have the weight's columns");
  rounded_.resize(std::max<size_t>(rounded_.size(), static_cast<size_t>(rows * stride)));
  const int64_t rows_per_share = std::max<int64_t>(1, 16384 / stride);
  pool_.ParallelFor(rows, rows_per_share, [&](Share share) {
    for (int64_t row = share.begin; row < share.end; ++row) {
      Bf16* out = rounded_.data() + row * stride;
      kernels_.round_to_bf16(x + row * columns, columns, out);
      if (columns < stride) out[columns] = 0;
    }
  });
  return {rounded_.data(), stride, rows};
}

void Linear::Run(const PackedWeight& weight, const Activations& x, const LinearOutput& output) const {
  LinearArgs args;
  args.x = x.data;
  args.x_stride = x.stride;
  args.rows = x.rows;
  args.panels = weight.data();
  args.k = weight.k();
  args.n = weight.n();
  args.bias = weight.bias();
  args.then = output.then;
  args.y = output.y;
  args.y_stride = output.stride;
  args.y_is_bf16 = output.bf16;
  const auto kernel = weight.format() == WeightFormat::kF32 ? kernels_.linear_f32 : kernels_.linear_bf16;
  const int64_t grain = std::max<int64_t>(1, weight.panels() / (pool_.threads() * kSharesPerThread));
  pool_.ParallelFor(weight.panels(), grain, [&](Share share) {
    LinearArgs part = args;
    part.panel_begin = share.begin;
    part.panel_end = share.end;
    kernel(part);
  });
}

}  // namespace baton
