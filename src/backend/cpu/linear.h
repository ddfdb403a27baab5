// Projections on all threads of a pool.
#pragma once

#include <cstdint>

#include "backend/cpu/kernels.h"
#include "backend/cpu/packed_weight.h"
#include "backend/cpu/thread_pool.h"

namespace baton {

// Rows of activations in the type that a weight's format needs: float [rows, k], or for kBf16Pairs
// Bf16 [rows, k] with an even k.
struct Activations {
  const void* data = nullptr;
  int64_t stride = 0;  // elements between rows
  int64_t rows = 0;
};

// The destination of a projection. LinearArgs describes the members.
struct LinearOutput {
  void* y = nullptr;
  int64_t stride = 0;  // elements between rows
  LinearThen then = LinearThen::kStore;
  bool bf16 = false;
};

// Thread-safe if every call has its own output.
class Linear {
 public:
  Linear(const KernelTable& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  // Multiplies x with the weight, and stores, adds or gates the result (LinearThen).
  void Run(const PackedWeight& weight, const Activations& x, const LinearOutput& output) const;

 private:
  const KernelTable& kernels_;
  ThreadPool& pool_;
};

}  // namespace baton
