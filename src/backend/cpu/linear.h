// Projections over all threads.
#pragma once

#include <cstdint>

#include "backend/cpu/kernels.h"
#include "backend/cpu/packed_weight.h"
#include "backend/cpu/thread_pool.h"

namespace baton {

// Rows of activations as a weight's format wants them: float [rows, k], or for kBf16Pairs Bf16 [rows, k] with k even.
struct Activations {
  const void* data = nullptr;
  int64_t stride = 0;  // elements between rows
  int64_t rows = 0;
};

// Where the result goes and how: LinearArgs has the meanings.
struct LinearOutput {
  void* y = nullptr;
  int64_t stride = 0;  // elements between rows
  LinearThen then = LinearThen::kStore;
  bool bf16 = false;
};

class Linear {
 public:
  Linear(const KernelTable& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  // Multiplies with the weight and stores, adds or gates the result.
  void Run(const PackedWeight& weight, const Activations& x, const LinearOutput& output) const;

 private:
  const KernelTable& kernels_;
  ThreadPool& pool_;
};

}  // namespace baton
