// A reference of the transformer in double precision, as the papers define it, for one sequence at
// a time. It shares only the shapes with src/.
#pragma once

#include <cmath>
#include <cstring>
#include <numbers>
#include <span>
#include <vector>

#include "model/weights.h"

namespace baton {

class ReferenceForward {
 public:
  explicit ReferenceForward(const Weights& weights) : w_(weights), c_(weights.config) {}

  // Returns the logits of the last token.
  std::vector<double> Logits(std::span<const TokenId> tokens) const {
    std::vector<Row> x;
    for (const TokenId token : tokens) x.push_back(RowOf(w_.embedding, token));
    for (const LayerWeights& layer : w_.layers) Layer(layer, x);
    return Multiply(w_.lm_head, {}, Norm(x.back(), w_.final_norm));
  }

 private:
  using Row = std::vector<double>;

  static double At(const Tensor& tensor, int64_t i) {
    uint32_t bits = 0;
    if (tensor.dtype == DType::kF32) {
      std::memcpy(&bits, tensor.data + 4 * i, 4);
    } else {
      std::memcpy(reinterpret_cast<char*>(&bits) + 2, tensor.data + 2 * i, 2);
    }
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
  static Row RowOf(const Tensor& tensor, int64_t row) {
    Row out(tensor.cols);
    for (int64_t i = 0; i < tensor.cols; ++i) out[i] = At(tensor, row * tensor.cols + i);
    return out;
  }
  static Row Multiply(const Tensor& w, const Tensor& bias, const Row& x) {
    Row y(w.rows);
    for (int64_t r = 0; r < w.rows; ++r) {
      y[r] = bias.data == nullptr ? 0 : At(bias, r);
      for (int64_t i = 0; i < w.cols; ++i) y[r] += At(w, r * w.cols + i) * x[i];
    }
    return y;
  }
  Row Norm(std::span<const double> x, const Tensor& weight) const {
    double squares = 0;
    for (const double v : x) squares += v * v;
    Row out(x.begin(), x.end());
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] *= At(weight, static_cast<int64_t>(i)) / std::sqrt(squares / static_cast<double>(x.size()) + c_.rms_eps);
    }
    return out;
  }
  // Applies the norm and the rotary embedding to every head of one token's q or k.
  void PrepareHeads(Row& heads, const Tensor& norm, size_t position) const {
    const size_t dim = c_.head_dim, half = dim / 2;
    for (size_t begin = 0; begin < heads.size(); begin += dim) {
      const std::span<double> head(&heads[begin], dim);
      if (norm.data != nullptr) {
        const Row normalised = Norm(head, norm);
        std::copy(normalised.begin(), normalised.end(), head.begin());
      }
      for (size_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(position) * std::pow(c_.rope_theta, -2.0 * i / dim);
        const double a = head[i], b = head[i + half];
        head[i] = a * std::cos(angle) - b * std::sin(angle);
        head[i + half] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
  void Layer(const LayerWeights& layer, std::vector<Row>& x) const {
    std::vector<Row> k, v;
    for (size_t t = 0; t < x.size(); ++t) {
      const Row in = Norm(x[t], layer.attention_norm);
      k.push_back(Multiply(layer.k, layer.k_bias, in));
      v.push_back(Multiply(layer.v, layer.v_bias, in));
      PrepareHeads(k.back(), layer.k_norm, t);
      Row q = Multiply(layer.q, layer.q_bias, in);
      PrepareHeads(q, layer.q_norm, t);
      Add(x[t], Multiply(layer.o, {}, Attend(q, k, v)));
    }
    for (Row& row : x) {
      const Row in = Norm(row, layer.ffn_norm);
      Row gated = Multiply(layer.gate, {}, in);
      const Row up = Multiply(layer.up, {}, in);
      for (size_t i = 0; i < up.size(); ++i) gated[i] = gated[i] / (1 + std::exp(-gated[i])) * up[i];
      Add(row, Multiply(layer.down, {}, gated));
    }
  }
  Row Attend(const Row& q, const std::vector<Row>& k, const std::vector<Row>& v) const {
    const size_t dim = c_.head_dim;
    Row out(q.size(), 0.0);
    for (int64_t head = 0; head < c_.heads; ++head) {
      const size_t at = head * dim, kv_at = head / (c_.heads / c_.kv_heads) * dim;
      Row weights(k.size());
      double max = -INFINITY, sum = 0;
      for (size_t t = 0; t < k.size(); ++t) {
        for (size_t i = 0; i < dim; ++i)
          weights[t] += q[at + i] * k[t][kv_at + i] / std::sqrt(static_cast<double>(dim));
        max = std::max(max, weights[t]);
      }
      for (double& weight : weights) sum += weight = std::exp(weight - max);
      for (size_t t = 0; t < k.size(); ++t) {
        for (size_t i = 0; i < dim; ++i) out[at + i] += weights[t] / sum * v[t][kv_at + i];
      }
    }
    return out;
  }
  static void Add(Row& x, const Row& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  const Weights& w_;
  const ModelConfig& c_;
};

}  // namespace baton
