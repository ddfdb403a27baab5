// The best rates of this machine, for comparison with measurements of the same run.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "backend/cpu/thread_pool.h"

namespace baton {

// Kinds of multiply-add from registers. A multiply-add counts as 2 operations.
enum class Arithmetic {
  kSse,  // multiply, then add: there is no FMA without AVX2
  kAvx2Fma,
  kAvx512Fma,
  kAvx512Bf16,  // pairs of bf16 (vdpbf16ps)
};

// Returns the arithmetic of the named kernel table (kernels.h), for bf16 or fp32 weights.
Arithmetic ArithmeticOf(std::string_view kernels, bool bf16_weights);

class Roofline {
 public:
  explicit Roofline(ThreadPool& pool);

  // Each call measures one short sample over all threads. Call them often, between other
  // measurements, and use the median.
  double FlopsPerSecond(Arithmetic arithmetic);
  double ReadBytesPerSecond();

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };

  ThreadPool& pool_;
  // Much larger than any cache.
  std::unique_ptr<std::byte, Free> buffer_;
};

}  // namespace baton
