// An estimate of the fixed cost of a step, from a model's shape.
#pragma once

#include "absl/time/time.h"
#include "model/config.h"

namespace baton {

// Rates of a device, per second.
struct StepRates {
  double flops = 0;           // of matrix products in bf16
  double memory_bytes = 0;    // of the memory that has the weights
  absl::Duration overhead{};  // launches and planning of one step
};
// Two cores with AVX2, and an A100 at 60 % of its peak. On a CPU, the overhead hardly counts.
inline constexpr StepRates kCpuRates = {.flops = 150e9, .memory_bytes = 26e9, .overhead = absl::ZeroDuration()};
inline constexpr StepRates kGpuRates = {.flops = 187e12, .memory_bytes = 2e12, .overhead = absl::Microseconds(500)};

// Returns the number of tokens whose arithmetic takes as long as the overhead and reading the
// weights of the layers, in bf16. It depends little on the device's speed, and more on its kind.
double FixedTokens(const ModelConfig& model, const StepRates& rates);

}  // namespace baton
