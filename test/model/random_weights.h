// Weights drawn from a seed, for tests and benchmarks that need only a model's shape.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "model/weights.h"

namespace baton {

class RandomWeights final : public Weights {
 public:
  RandomWeights(const ModelConfig& shape, uint32_t seed) : random_(seed) {
    config = shape;
    embedding = Matrix(config.vocab, config.hidden, 1);
    for (int64_t l = 0; l < config.layers; ++l) {
      LayerWeights& layer = layers.emplace_back();
      for (const LayerTensorRow& row : kLayerTensors) {
        if (Has(config, row)) layer.*row.tensor = Draw(row);
      }
    }
    final_norm = Norm(config.hidden);
    lm_head = config.tied_embeddings ? embedding : Projection(config.vocab, config.hidden);
  }

 private:
  Tensor Draw(const LayerTensorRow& row) {
    const int64_t rows = SizeOf(row.rows, config), cols = SizeOf(row.cols, config);
    if (row.is_norm()) return Norm(rows);
    return row.is_bias() ? Matrix(rows, 1, 0.5) : Projection(rows, cols);
  }
  // Draws values uniformly from [mean - spread, mean + spread]. The draw is cheap, because a
  // benchmark needs 10^8 values.
  Tensor Draw(int64_t rows, int64_t cols, float mean, double spread) {
    const float step = static_cast<float>(spread / 32768);
    std::vector<std::byte>& bytes = tensors_.emplace_back(rows * cols * BytesPerElement(config.dtype));
    for (int64_t i = 0; i < rows * cols; ++i) {
      // random_() has 31 bits.
      const float value = mean + step * (static_cast<float>(random_() >> 15) - 32768);
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof(bits));
      if (config.dtype == DType::kF32) {
        std::memcpy(&bytes[4 * i], &bits, 4);
      } else {
        const uint16_t rounded = static_cast<uint16_t>((bits + 0x8000) >> 16);
        std::memcpy(&bytes[2 * i], &rounded, 2);
      }
    }
    return {bytes.data(), config.dtype, rows, cols};
  }
  Tensor Matrix(int64_t rows, int64_t cols, double spread) { return Draw(rows, cols, 0, spread); }
  // Keeps the size of its input, with a small increase that makes attention peaked.
  Tensor Projection(int64_t rows, int64_t cols) {
    return Matrix(rows, cols, 2.5 / std::sqrt(static_cast<double>(cols)));
  }
  Tensor Norm(int64_t count) { return Draw(count, 1, 1, 0.3); }

  std::minstd_rand random_;
  std::deque<std::vector<std::byte>> tensors_;
};

}  // namespace baton
