// What this machine can do at best, measured in the same run as what is compared with it.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "backend/cpu/thread_pool.h"

namespace baton {

// Multiply-add rate of all threads, 2 operations each, from registers alone.
enum class Arithmetic {
  kSse,         // multiply, then add: no FMA without AVX2
  kAvx2Fma,     //
  kAvx512Fma,   //
  kAvx512Bf16,  // pairs of bf16 (vdpbf16ps)
};

// What the named kernel table (kernels.h) multiplies with, for bf16 or fp32 weights.
Arithmetic ArithmeticOf(std::string_view kernels, bool bf16_weights);

class Roofline {
 public:
  explicit Roofline(ThreadPool& pool);

  // One short sample each: call them often, between other measurements, and take the median.
  double FlopsPerSecond(Arithmetic arithmetic);
  double ReadBytesPerSecond();

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };

  ThreadPool& pool_;
  std::unique_ptr<std::byte, Free> buffer_;  // far larger than any cache
};

}  // namespace baton
