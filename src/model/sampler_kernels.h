// The loops over a whole vocabulary that the sampler needs, for several instruction sets
// ("levels"). All levels return the same bits, because they sum lanes in the same order and use no
// fused multiply-add.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace baton {

struct SamplerKernels {
  // Returns the largest of x[0, n), or NaN if any element is NaN. REQUIRES: n >= 1.
  float (*max)(const float* x, int64_t n);

  // w[i] = exp((x[i] - max) * scale), with a relative error below 2e-7. The result is exactly 1 at
  // the maximum, and exactly 0 if it would be below 1e-37. REQUIRES: x[i] <= max, scale > 0.
  void (*exp_weights)(const float* x, int64_t n, float max, float scale, float* w);

  struct Tail {
    int64_t count = 0;
    double sum = 0;
  };
  // Returns the count and the sum of the elements of w[0, n) that are >= threshold.
  Tail (*tail)(const float* w, int64_t n, float threshold);

  // Writes the elements of w[0, n) that are >= threshold, and their indices, in order. Returns
  // their number. May write to any index below n of either output. REQUIRES: the outputs do not
  // overlap w.
  int64_t (*compact)(const float* w, int64_t n, float threshold, float* out, TokenId* indices);
};

// Returns the levels that this machine can run, fastest first. The last level is portable.
const std::vector<SamplerKernels>& SamplerLevels();
inline const SamplerKernels& FastestSamplerKernels() { return SamplerLevels().front(); }

}  // namespace baton
