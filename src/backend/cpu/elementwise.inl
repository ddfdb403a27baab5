// What happens to single rows between projections and attention.
#include "backend/cpu/kernels.h"

namespace baton {
namespace {

// The sum of squares is taken by lane, then over lanes, then over the tail: an order that depends on `count` alone.
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

void RopeRow(float* x, const float* turn, int64_t head_dim, int64_t heads) {
  const int64_t half = head_dim / 2;
  const float* sines = turn + half;
  for (int64_t head = 0; head < heads; ++head, x += head_dim) {
    float* y = x + half;
    int64_t i = 0;
    for (; i + 16 <= half; i += 16) {
      const F32x16 a = Load(x + i), b = Load(y + i), cosine = Load(turn + i), sine = Load(sines + i);
      Store(x + i, Sub(Mul(a, cosine), Mul(b, sine)));
      Store(y + i, Add(Mul(b, cosine), Mul(a, sine)));
    }
    for (; i < half; ++i) {
      const float a = x[i], b = y[i];
      x[i] = a * turn[i] - b * sines[i];
      y[i] = b * turn[i] + a * sines[i];
    }
  }
}

}  // namespace
}  // namespace baton
