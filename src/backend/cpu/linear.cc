#include "backend/cpu/linear.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace baton {
namespace {

// Shares per thread. A share of few rows begins a new stream of weights, which is slow at first, so
// each thread gets one share. Shares of many rows find their weights in a cache, so each thread
// gets several. They balance threads that are interrupted.
constexpr int64_t kSharesOfFewRows = 1;
constexpr int64_t kSharesOfManyRows = 8;

}  // namespace

void Linear::Run(const PackedWeight& weight, const Activations& x, const LinearOutput& output) const {
  BATON_CHECK(x.stride >= weight.k(), "activations have the weight's columns");
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
  const bool bf16_x = weight.format() == WeightFormat::kBf16Pairs;
  const auto kernel = weight.format() == WeightFormat::kF32 ? kernels_.linear_f32 : kernels_.linear_bf16;
  // A share is a block of rows by a block of panels. Shares of the same rows follow each other,
  // because their activations are in the cache.
  const int64_t row_blocks = (x.rows + kLinearRows - 1) / kLinearRows;
  const int64_t wanted =
      pool_.threads() * (row_blocks > 1 ? kSharesOfManyRows : kSharesOfFewRows) / std::max<int64_t>(row_blocks, 1);
  const int64_t panel_blocks = std::clamp<int64_t>(wanted, 1, weight.panels());
  pool_.ParallelFor(row_blocks * panel_blocks, 1, [&](Share share) {
    LinearArgs part = args;
    const int64_t row = share.begin / panel_blocks * kLinearRows;
    part.x = static_cast<const std::byte*>(args.x) + row * x.stride * (bf16_x ? sizeof(Bf16) : sizeof(float));
    part.y = static_cast<std::byte*>(args.y) + row * output.stride * (output.bf16 ? sizeof(Bf16) : sizeof(float));
    part.rows = std::min(kLinearRows, x.rows - row);
    part.panel_begin = weight.panels() * (share.begin % panel_blocks) / panel_blocks;
    part.panel_end = weight.panels() * (share.begin % panel_blocks + 1) / panel_blocks;
    kernel(part);
  });
}

}  // namespace baton
