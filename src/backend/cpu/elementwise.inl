// Operations on single rows between projections and attention.
#include <cstddef>
#include <cstring>

#include "backend/cpu/kernels.h"

namespace baton {
namespace {

// Sums the squares by lane, then over the lanes, then over the tail. This order depends on `count`
// alone.
void RmsNormRow(const float* x, const float* weight, float epsilon, int64_t count, float* out) {
  F32x16 squares = Zero();
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) squares = Fma(Load(x + i), Load(x + i), squares);
  float sum = Sum(squares);
  for (; i < count; ++i) sum += x[i] * x[i];
  const float scale = 1.0f / __builtin_sqrtf(sum / static_cast<float>(count) + epsilon);
  const F32x16 scales = Broadcast(scale);
  for (i = 0; i + 16 <= count; i += 16) Store(out + i, Mul(Mul(Load(x + i), scales), Load(weight + i)));
  for (; i < count; ++i) out[i] = x[i] * scale * weight[i];
}

void RopeRow(float* x, const float* rotation, int64_t head_dim, int64_t heads) {
  const int64_t half = head_dim / 2;
  const float* sines = rotation + half;
  for (int64_t head = 0; head < heads; ++head, x += head_dim) {
    float* y = x + half;
    int64_t i = 0;
    for (; i + 16 <= half; i += 16) {
      const F32x16 a = Load(x + i), b = Load(y + i), cosine = Load(rotation + i), sine = Load(sines + i);
      Store(x + i, Sub(Mul(a, cosine), Mul(b, sine)));
      Store(y + i, Add(Mul(b, cosine), Mul(a, sine)));
    }
    for (; i < half; ++i) {
      const float a = x[i], b = y[i];
      x[i] = a * rotation[i] - b * sines[i];
      y[i] = b * rotation[i] + a * sines[i];
    }
  }
}

// Calls store(i, pair) for even i, where `pair` has values i and i + 1 as bf16.
template <class Store>
void ForBf16Pairs(const float* x, int64_t count, Store store) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Bf16 pairs[kLanes];
    StoreBf16(pairs, Load(x + i));
#pragma GCC unroll 8
    for (int64_t j = 0; j < kLanes; j += 2) store(i + j, pairs + j);
  }
  for (; i < count; i += 2) {
    const Bf16 pair[2] = {RoundToBf16(x[i]), RoundToBf16(x[i + 1])};
    store(i, pair);
  }
}

void StoreKBf16(const float* k, int64_t head_dim, int64_t slot, std::byte* out) {
  Bf16* words = reinterpret_cast<Bf16*>(out) + 2 * slot;
  ForBf16Pairs(k, head_dim, [&](int64_t i, const Bf16* pair) { memcpy(words + i * kBlockKeys, pair, 4); });
}

void StoreVBf16(const float* v, int64_t head_dim, int64_t slot, std::byte* out) {
  Bf16* words = reinterpret_cast<Bf16*>(out) + slot / 2 * 2 * head_dim + slot % 2;
  ForBf16Pairs(v, head_dim, [&](int64_t i, const Bf16* pair) {
    words[2 * i] = pair[0];
    words[2 * i + 2] = pair[1];
  });
}

void StoreKF32(const float* k, int64_t head_dim, int64_t slot, std::byte* out) {
  float* column = reinterpret_cast<float*>(out) + slot;
  for (int64_t i = 0; i < head_dim; ++i) column[i * kBlockKeys] = k[i];
}

void StoreVF32(const float* v, int64_t head_dim, int64_t slot, std::byte* out) {
  memcpy(reinterpret_cast<float*>(out) + slot * head_dim, v, static_cast<size_t>(head_dim) * sizeof(float));
}

}  // namespace
}  // namespace baton
