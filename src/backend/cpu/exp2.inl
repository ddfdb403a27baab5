// 2^x, the exponential of softmax.
#include "backend/cpu/kernels.h"

namespace baton {
namespace {

// Exact for integers x in [-126, 127], in particular 2^0 = 1; the relative error is below 2e-7 between them; 0 for
// -infinity. Without AVX-512, x is cut at 127 and the result is 0 below -126.5.
// 2^x = 2^n 2^f with f in [-1/2, 1/2]; the polynomial is the minimax one of degree 6.
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
