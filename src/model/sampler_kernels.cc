#include "model/sampler_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace baton {
namespace {

// Vectors of eight lanes. The compiler splits them if the registers are narrower.
using F8 = float __attribute__((vector_size(32)));
using I8 = int32_t __attribute__((vector_size(32)));
constexpr int64_t kLanes = 8;
// Number of elements that are summed in float before they are added to a sum in double. This keeps
// the rounding error of a long sum below 1e-6.
constexpr int64_t kChunk = 1024;

#define BATON_INLINE [[gnu::always_inline]] inline

// Loads the first min(n, 8) elements of x. The other lanes are `fill`.
BATON_INLINE void Load(const float* x, int64_t n, float fill, F8& lanes) {
  if (n >= kLanes) {
    std::memcpy(&lanes, x, sizeof lanes);
    return;
  }
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = i < n ? x[i] : fill;
}

BATON_INLINE float MaxBody(const float* x, int64_t n) {
  F8 max[2], v;
  Load(x, std::min(n, kLanes), x[0], max[0]);
  max[1] = max[0];
  I8 nan{};
  for (int64_t i = 0; i < n; i += 2 * kLanes) {
    for (int64_t k = 0; k < 2; ++k) {
      const int64_t begin = i + k * kLanes;
      if (begin >= n) break;
      Load(x + begin, n - begin, x[0], v);
      nan |= v != v;
      max[k] = v > max[k] ? v : max[k];
    }
  }
  float result = max[0][0];
  bool any_nan = false;
  for (int64_t i = 0; i < kLanes; ++i) {
    result = std::max({result, max[0][i], max[1][i]});
    any_nan |= nan[i] != 0;
  }
  return any_nan ? NAN : result;
}

// x = exp(x) for x <= 0. The result is 2^k e^r with |r| <= ln2 / 2. The reduction splits ln2 into
// two parts (Cody and Waite). e^r is a Taylor polynomial up to r^7 / 7!.
BATON_INLINE void Exp(F8& x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const F8 zero{};
  const I8 tiny = x < -85.0f;
  x = tiny ? zero : x;
  const F8 k = (x * 1.44269504f + kRound) - kRound;
  const F8 r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
  F8 p = r * (1.0f / 5040) + (1.0f / 720);
  p = p * r + (1.0f / 120);
  p = p * r + (1.0f / 24);
  p = p * r + (1.0f / 6);
  p = p * r + 0.5f;
  p = p * (r * r) + r + 1.0f;
  const I8 power = (__builtin_convertvector(k, I8) + 127) << 23;
  F8 scale;
  std::memcpy(&scale, &power, sizeof scale);
  x = tiny ? zero : p * scale;
}

BATON_INLINE void ExpWeightsBody(const float* x, int64_t n, float max, float scale, float* w) {
  F8 v;
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t count = std::min(kLanes, n - i);
    Load(x + i, count, max, v);
    v = (v - max) * scale;
    Exp(v);
    if (count == kLanes) {
      std::memcpy(w + i, &v, sizeof v);
    } else {
      for (int64_t k = 0; k < count; ++k) w[i + k] = v[k];
    }
  }
}

BATON_INLINE SamplerKernels::Tail TailBody(const float* w, int64_t n, float threshold) {
  SamplerKernels::Tail result;
  F8 v;
  const F8 zero{};
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t end = std::min(n, begin + kChunk);
    F8 sum{};
    I8 count{};
    for (int64_t i = begin; i < end; i += kLanes) {
      Load(w + i, end - i, -1.0f, v);
      const I8 in = v >= threshold;  // -1 where true
      sum += in ? v : zero;
      count -= in;
    }
    for (int64_t i = 0; i < kLanes; ++i) {
      result.count += count[i];
      result.sum += sum[i];
    }
  }
  return result;
}

BATON_INLINE int64_t CompactBody(const float* w, int64_t n, float threshold, float* out, TokenId* indices) {
  constexpr int64_t kGroup = 4 * kLanes;
  int64_t size = 0;
  F8 v[4];
  int64_t begin = 0;
  for (; begin < n; begin += kGroup) {
    const int64_t end = std::min(n, begin + kGroup);
    // Most groups have no element above the threshold and are skipped at once.
    if (end - begin == kGroup) {
      std::memcpy(v, w + begin, sizeof v);
      const I8 any = (v[0] >= threshold) | (v[1] >= threshold) | (v[2] >= threshold) | (v[3] >= threshold);
      int64_t words[4];
      std::memcpy(words, &any, sizeof any);
      if ((words[0] | words[1] | words[2] | words[3]) == 0) continue;
    }
    for (int64_t i = begin; i < end; ++i) {
      out[size] = w[i];
      indices[size] = static_cast<TokenId>(i);
      size += w[i] >= threshold;
    }
  }
  return size;
}

#undef BATON_INLINE

constexpr SamplerKernels kPortable = {MaxBody, ExpWeightsBody, TailBody, CompactBody};

#if defined(__x86_64__)
#define BATON_AVX2 __attribute__((target("avx2")))
BATON_AVX2 float MaxAvx2(const float* x, int64_t n) { return MaxBody(x, n); }
BATON_AVX2 void ExpWeightsAvx2(const float* x, int64_t n, float max, float scale, float* w) {
  ExpWeightsBody(x, n, max, scale, w);
}
BATON_AVX2 SamplerKernels::Tail TailAvx2(const float* w, int64_t n, float threshold) {
  return TailBody(w, n, threshold);
}
BATON_AVX2 int64_t CompactAvx2(const float* w, int64_t n, float threshold, float* out, TokenId* indices) {
  return CompactBody(w, n, threshold, out, indices);
}
#undef BATON_AVX2
constexpr SamplerKernels kAvx2 = {MaxAvx2, ExpWeightsAvx2, TailAvx2, CompactAvx2};
#endif

}  // namespace

const std::vector<SamplerKernels>& SamplerLevels() {
  static const std::vector<SamplerKernels> levels = [] {
    std::vector<SamplerKernels> usable;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) usable.push_back(kAvx2);
#endif
    usable.push_back(kPortable);
    return usable;
  }();
  return levels;
}

}  // namespace baton
