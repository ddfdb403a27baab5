// Moves across lanes, beside the arithmetic of simd_portable.h.
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

// Lane j of row i becomes lane i of row j.
inline void Transpose(F32x16 rows[16]) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < i; ++j) {
      const float t = rows[i].lane[j];
      rows[i].lane[j] = rows[j].lane[i];
      rows[j].lane[i] = t;
    }
  }
}

}  // namespace
}  // namespace baton
