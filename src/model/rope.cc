#include "model/rope.h"

#include <cmath>
#include <numbers>

namespace baton {
namespace {

// Returns the scaled frequency, as transformers does for rope type "llama3". Wavelengths longer
// than original_context / low_freq_factor have their frequency divided by `factor`. Wavelengths
// shorter than original_context / high_freq_factor keep their frequency. Others blend the two.
double Scale(double frequency, const RopeScaling& scaling) {
  const double rotations = static_cast<double>(scaling.original_context) * frequency / (2 * std::numbers::pi);
  if (rotations < scaling.low_freq_factor) return frequency / scaling.factor;
  if (rotations > scaling.high_freq_factor) return frequency;
  const double kept = (rotations - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - kept) * frequency / scaling.factor + kept * frequency;
}

}  // namespace

std::vector<float> RopeFrequencies(const ModelConfig& config) {
  std::vector<float> frequencies(config.head_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = 2 * static_cast<double>(i) / static_cast<double>(config.head_dim);
    const double frequency = std::pow(config.rope_theta, -exponent);
    frequencies[i] = static_cast<float>(config.rope_scaling ? Scale(frequency, *config.rope_scaling) : frequency);
  }
  return frequencies;
}

void RopeTable::Extend(int64_t positions) {
  const size_t half = frequencies_.size();
  const int64_t rows_before = static_cast<int64_t>(rows_.size() / (2 * half));
  if (positions <= rows_before) return;
  rows_.resize(positions * 2 * half);
  for (int64_t position = rows_before; position < positions; ++position) {
    float* row = &rows_[position * 2 * half];
    for (size_t i = 0; i < half; ++i) {
      // The product is rounded to fp32, as in transformers.
      const double angle = static_cast<float>(position) * frequencies_[i];
      row[i] = static_cast<float>(std::cos(angle));
      row[half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace baton
