// The loops over a whole vocabulary that sampling needs. Every level gives the same bits: lanes are summed in one
// order and nothing is fused.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace baton {

struct SamplerKernels {
  // The largest of x[0, n), NaN if any is NaN. n >= 1.
  float (*max)(const float* x, int64_t n);

  // w[i] = exp((x[i] - max) * scale), exactly 1 at the maximum and exactly 0 where it would be below 1e-37.
  // x[i] <= max, scale > 0; error < 2e-7 relative.
  void (*exp_weights)(const float* x, int64_t n, float max, float scale, float* w);

  struct Tail {
    int64_t count = 0;
    double sum = 0;
  };
  // How many of w[0, n) are >= threshold, and their sum.
  Tail (*tail)(const float* w, int64_t n, float threshold);

  // Writes those of w[0, n) that are >= threshold and their indices, in order; returns how many. May write up to
  // index n - 1 of either output, which must not overlap w.
  int64_t (*compact)(const float* w, int64_t n, float threshold, float* out, TokenId* indices);
};

// Fastest first; all of them run on this machine. The last is portable.
const std::vector<SamplerKernels>& SamplerLevels();

}  // namespace baton
