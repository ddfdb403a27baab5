// Operations across the lanes of a vector, beside the lane-wise arithmetic of simd_portable.h.
#pragma once

#include "backend/cpu/simd_portable.h"

namespace baton {
namespace {

inline float MaxLane(F32x16 v) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) v.lane[i] = v.lane[i] > v.lane[i + half] ? v.lane[i] : v.lane[i + half];
  }
  return v.lane[0];
}

}  // namespace
}  // namespace baton
