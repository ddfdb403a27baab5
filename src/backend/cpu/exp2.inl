// 2^x, the exponential function of the softmax.
#include "backend/cpu/kernels.h"

namespace baton {
namespace {

// Returns 2^x. Exact for integers x in [-126, 127], in particular 2^0 = 1. Between integers, the
// relative error is below 2e-7. The result for -infinity is 0. Without AVX-512, x is clamped to at
// most 127, and the result is 0 below -126.5.
//
// 2^x = 2^n 2^f with f in [-1/2, 1/2]. The polynomial is the minimax polynomial of degree 6.
inline F32x16 Exp2(F32x16 x) {
  const Exponent e = SplitExponent(x);
  const F32x16 f = e.fraction;
  F32x16 p = Broadcast(1.535321815e-4f);
  p = Fma(p, f, Broadcast(1.339885122e-3f));
  p = Fma(p, f, Broadcast(9.618437604e-3f));
  p = Fma(p, f, Broadcast(5.550332533e-2f));
  p = Fma(p, f, Broadcast(2.402264791e-1f));
  p = Fma(p, f, Broadcast(6.931472028e-1f));
  p = Fma(p, f, Broadcast(1.0f));
  return ScaleByPowerOfTwo(p, e);
}

}  // namespace
}  // namespace baton
