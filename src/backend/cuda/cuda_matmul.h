// Matrix products of projections, bf16 with fp32 accumulation. They run in cuBLASLt or, for few
// rows, in kernels/gemv.h.
#pragma once

#include <cuda_bf16.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backend/cuda/cublas_lt.h"
#include "backend/cuda/cuda_memory.h"

namespace baton {

// The arguments of y = x w^T + bias, or of y += x w^T. The pointers are device pointers, 16-byte
// aligned. k is a multiple of 8.
struct MatrixProduct {
  const __nv_bfloat16* x = nullptr;     // [rows, k]
  const __nv_bfloat16* w = nullptr;     // [n, k]
  const __nv_bfloat16* bias = nullptr;  // [n], or null
  void* y = nullptr;                    // [rows, n], bf16 or fp32
  int64_t rows = 0, n = 0, k = 0;
  // Elements from row to row of y. 0 stands for n.
  int64_t y_stride = 0;
  bool fp32_output = false;
  // True if the product is added to y.
  bool add = false;

  int64_t YStride() const { return y_stride > 0 ? y_stride : n; }
};

// Computes the product with kernels/gemv.h. With `swiglu`, it uses the fused SwiGLU form of that
// kernel.
cudaError_t RunGemv(const MatrixProduct& product, bool swiglu, cudaStream_t stream);

// Computes products with the algorithm that it has learnt for their shape.
//
// - Learn measures candidates when a shape is first seen, and keeps the fastest. The candidates are
//   the algorithms that cuBLASLt suggests, and other tiles of the algorithm that it suggests for
//   many rows.
// - For many rows, the first suggestion of cuBLASLt is used without a measurement.
// - For few rows, kernels/gemv.h is measured against the fastest candidate.
// - With `same_bits`, a row's sums should not depend on the number of rows. Each shape of weight
//   has one reference algorithm, which sums over k in one order. A candidate for another size class
//   replaces it only if it gives the same bits on random rows, at up to five numbers of rows of the
//   class.
//
// Not thread-safe.
class CudaMatmul {
 public:
  // Loads cuBLASLt and allocates its workspace. UNAVAILABLE: as for LoadCublasLt.
  // RESOURCE_EXHAUSTED: out of device memory.
  static absl::StatusOr<std::unique_ptr<CudaMatmul>> Create(bool same_bits);
  ~CudaMatmul();

  // Rounds `rows` up to the end of its size class. All numbers of rows of a class share the
  // algorithm that was learnt for them.
  static int64_t RowsPlannedFor(int64_t rows);
  // The version of cuBLASLt. Another version may order sums otherwise.
  size_t version() const { return lt_.GetVersion(); }
  // Chooses the algorithm for products like this one. The product's w is any of `weights`.
  // Together, `weights` should exceed the device's cache, if the model has enough weights. x has
  // RowsPlannedFor(rows) rows, and y is not used.
  //
  // Takes some hundred milliseconds, and waits for the stream. With `same_bits`, it takes as much
  // memory as x and y again.
  absl::Status Learn(MatrixProduct product, std::span<const __nv_bfloat16* const> weights, cudaStream_t stream);
  // Enqueues the product. Learns its shape first, from this w alone, if it is not learnt. A call
  // that learns cannot be captured.
  absl::Status Run(const MatrixProduct& product, cudaStream_t stream);
  // Returns the learnt algorithm for products like this one as text, with the values of
  // cublasLtMatmulAlgoConfigAttributes_t. REQUIRES: the shape is learnt.
  std::string Describe(const MatrixProduct& product) const;
  // Returns true if Run uses kernels/gemv.h, because it was measured to be faster. The fused form
  // of gemv is then faster, too, because it saves a launch. False with `same_bits` and for shapes
  // that are not learnt.
  bool PrefersGemv(const MatrixProduct& product) const;

 private:
  using Algorithm = cublasLtMatmulAlgo_t;
  struct Shape {
    int64_t rows, n, k, y_stride;
    bool fp32_output, add, bias;
    auto operator<=>(const Shape&) const = default;
  };

  // The learnt way to compute products of one shape.
  struct Choice {
    Algorithm algorithm;
    // Up to this number of rows, kernels/gemv.h is used.
    int64_t gemv_rows = 0;
    // True if the product is split into products of fewer rows, because no algorithm gives this
    // many rows the right bits.
    bool in_parts = false;
  };
  struct Timed {
    float ms;
    Algorithm algorithm;
  };

  CudaMatmul(bool same_bits, const CublasLt& lt) : same_bits_(same_bits), lt_(lt) {}
  Shape ShapeOf(const MatrixProduct& product) const;
  // Returns cuBLASLt's suggestions, the fastest first by its estimate.
  absl::StatusOr<std::vector<Algorithm>> Suggest(const Shape& shape) const;
  // Returns those algorithms that support every number of rows that shares the shape's algorithm.
  // An error if there is none.
  absl::StatusOr<std::vector<Algorithm>> Able(const std::vector<Algorithm>& algorithms, const Shape& shape) const;
  bool IsAble(const Algorithm& algorithm, const Shape& shape, int64_t rows) const;
  std::vector<Algorithm> VariantsOf(const Algorithm& algorithm) const;
  absl::StatusOr<std::vector<Timed>> FastestFirst(const MatrixProduct& product,
                                                  std::span<const __nv_bfloat16* const> weights,
                                                  const std::vector<Algorithm>& candidates, cudaStream_t stream) const;
  absl::StatusOr<int64_t> RowsForGemv(const MatrixProduct& product, std::span<const __nv_bfloat16* const> weights,
                                      float ms_to_beat, cudaStream_t stream) const;
  absl::StatusOr<std::optional<Algorithm>> FirstWithOwnBits(const std::vector<Algorithm>& own,
                                                            const MatrixProduct& product,
                                                            const std::vector<Algorithm>& candidates,
                                                            cudaStream_t stream) const;
  absl::Status RunInParts(const MatrixProduct& product, cudaStream_t stream);
  absl::Status RunWith(const Algorithm& algorithm, const MatrixProduct& product, cudaStream_t stream) const;
  absl::Status Error(cublasStatus_t status, const std::string& what) const;

  const bool same_bits_;
  const CublasLt& lt_;
  cublasLtHandle_t handle_ = nullptr;
  DeviceBuffer<std::byte> workspace_;
  std::map<Shape, Choice> choices_;
};

}  // namespace baton
