// A projection's weight, laid out once for the kernels that will use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/cpu/kernels.h"
#include "model/weights.h"

namespace baton {

class PackedWeight {
 public:
  PackedWeight() = default;

  // Stacks the tensors' rows, in order, into one weight [sum of rows, cols]: q, k and v make one projection. `biases`
  // is empty or has one entry per tensor, a vector of its rows or a null tensor. Packed as bf16 in the table's format
  // when every tensor is bf16, else as f32. Shapes are the model's own: a mismatch is CHECKed.
  PackedWeight(const KernelTable& kernels, std::span<const Tensor> tensors, std::span<const Tensor> biases = {});

  // Gate and up projection of one shape, 16 of one beside 16 of the other in each panel: for kSwiGlu.
  static PackedWeight GateUp(const KernelTable& kernels, const Tensor& gate, const Tensor& up);

  WeightFormat format() const { return format_; }
  int64_t n() const { return n_; }  // outputs
  int64_t k() const { return k_; }  // inputs as packed: even for kBf16Pairs, else the tensor's columns
  int64_t panels() const { return panels_; }
  int64_t bytes() const;
  const void* data() const { return data_.get(); }
  const float* bias() const { return bias_.get(); }  // [32 * panels], or null

 private:
  void Allocate(const KernelTable& kernels, std::span<const Tensor> tensors);
  void PackRow(const Tensor& tensor, int64_t row, int64_t panel, int64_t lane);

  struct Free {
    void operator()(void* p) const;
  };

  WeightFormat format_ = WeightFormat::kF32;
  int64_t n_ = 0;
  int64_t k_ = 0;
  int64_t panels_ = 0;
  std::unique_ptr<std::byte, Free> data_;
  std::unique_ptr<float, Free> bias_;
};

}  // namespace baton
