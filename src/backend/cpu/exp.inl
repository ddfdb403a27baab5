// The exponential of sixteen floats.
#include "backend/cpu/kernels.h"

namespace baton {
namespace {

// Relative error < 2e-7 on [-87, 88]; x is cut there. Cephes' polynomial after x = n ln 2 + r, |r| <= ln 2 / 2.
// NaN stays NaN.
inline F32x16 Exp(F32x16 x) {
  x = Min(Broadcast(88.0f), Max(Broadcast(-87.0f), x));
  const F32x16 magic = Broadcast(0x1.8p23f);  // at this size a float holds integers only
  const F32x16 n = Sub(Fma(x, Broadcast(1.44269504088896341f), magic), magic);
  F32x16 r = Fma(n, Broadcast(-0.693359375f), x);
  r = Fma(n, Broadcast(2.12194440e-4f), r);
  F32x16 e = Broadcast(1.9875691500e-4f);
  e = Fma(e, r, Broadcast(1.3981999507e-3f));
  e = Fma(e, r, Broadcast(8.3334519073e-3f));
  e = Fma(e, r, Broadcast(4.1665795894e-2f));
  e = Fma(e, r, Broadcast(1.6666665459e-1f));
  e = Fma(e, r, Broadcast(5.0000001201e-1f));
  e = Add(Fma(Mul(r, r), e, r), Broadcast(1.0f));
  return Mul(e, PowerOfTwo(n));
}

}  // namespace
}  // namespace baton
