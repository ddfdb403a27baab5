// A projection's weight, laid out once for the kernels that will use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/thread_pool.h"
#include "backend/cpu/weight_memory.h"
#include "model/weights.h"

namespace baton {

class PackedWeight {
 public:
  PackedWeight() = default;

  // Stacks the tensors' rows, in order, into one weight [sum of rows, cols]: q, k and v make one projection. `biases`
  // is empty or has one entry per tensor, a vector of its rows or a null tensor. Packed as bf16 in the table's format
  // when every tensor is bf16, else as f32. Shapes are the model's own: a mismatch is CHECKed. `memory` must outlive
  // it. `pool` shares the work; null: this thread does it.
  PackedWeight(WeightMemory& memory, const KernelTable& kernels, std::span<const Tensor> tensors,
               std::span<const Tensor> biases = {}, ThreadPool* pool = nullptr);

  // Gate and up projection of one shape, 16 of one beside 16 of the other in each panel: for kSwiGlu.
  static PackedWeight GateUp(WeightMemory& memory, const KernelTable& kernels, const Tensor& gate, const Tensor& up,
                             ThreadPool* pool = nullptr);

  WeightFormat format() const { return format_; }
  int64_t n() const { return n_; }  // outputs
  int64_t k() const { return k_; }  // inputs as packed: even for kBf16Pairs, else the tensor's columns
  int64_t panels() const { return panels_; }
  int64_t bytes() const;
  const void* data() const { return data_; }
  const float* bias() const { return bias_; }  // [32 * panels], or null

 private:
  void Pack(WeightMemory& memory, const KernelTable& kernels, const std::vector<Tensor>& rows, ThreadPool* pool);
  void PackPanel(int64_t panel, std::span<const Tensor> rows);
  void PackBias(WeightMemory& memory, std::span<const Tensor> tensors, std::span<const Tensor> biases);

  WeightFormat format_ = WeightFormat::kF32;
  int64_t n_ = 0;
  int64_t k_ = 0;
  int64_t panels_ = 0;
  std::byte* data_ = nullptr;
  float* bias_ = nullptr;
};

}  // namespace baton
