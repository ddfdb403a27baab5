// The weight of a projection, packed in the layout that the kernels read.
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

// A view of memory in a WeightMemory, which must outlive it.
class PackedWeight {
 public:
  PackedWeight() = default;

  // Stacks the rows of the tensors, in order, into one weight [sum of rows, cols]. For example, q,
  // k and v make one projection.
  //
  // - `biases` is empty or has one entry per tensor: a vector with one value per row, or a null
  //   tensor.
  // - The weight is packed as bf16 in the table's format if every tensor is bf16, else as f32.
  // - The shapes come from the model, so a mismatch fails a CHECK.
  // - `pool` shares the work. If it is null, the calling thread does all of it.
  PackedWeight(WeightMemory& memory, const KernelTable& kernels, std::span<const Tensor> tensors,
               std::span<const Tensor> biases = {}, ThreadPool* pool = nullptr);

  // Packs the gate and up projections, which have one shape, for kSwiGlu. Each panel has 16 rows of
  // `gate` beside the same 16 rows of `up`.
  static PackedWeight GateUp(WeightMemory& memory, const KernelTable& kernels, const Tensor& gate, const Tensor& up,
                             ThreadPool* pool = nullptr);

  WeightFormat format() const { return format_; }
  int64_t n() const { return n_; }  // outputs
  // Inputs as packed: the tensor's columns, rounded up to an even number for kBf16Pairs.
  int64_t k() const { return k_; }
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
