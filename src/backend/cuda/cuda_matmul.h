// Projections by cuBLASLt, bf16 with fp32 accumulation, and the choice between it and kernels/gemv.h for few rows.
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

// y = x w^T + bias, or y += x w^T. Device pointers, 16-byte aligned; k is a multiple of 8.
struct MatrixProduct {
  const __nv_bfloat16* x = nullptr;     // [rows, k]
  const __nv_bfloat16* w = nullptr;     // [n, k]
  const __nv_bfloat16* bias = nullptr;  // [n], or null
  void* y = nullptr;                    // [rows, n], bf16 or fp32
  int64_t rows = 0, n = 0, k = 0;
  int64_t y_stride = 0;  // elements from row to row of y; 0: n
  bool fp32_output = false;
  bool add = false;  // to what y holds

  int64_t YStride() const { return y_stride > 0 ? y_stride : n; }
};

// By kernels/gemv.h; with `swiglu` as its form of that name.
cudaError_t RunGemv(const MatrixProduct& product, bool swiglu, cudaStream_t stream);

// Keeps an algorithm for each shape of product: of those that cuBLASLt suggests, and other tiles of the one that it
// suggests for many rows, the fastest, as measured when the shape is first seen; with many rows its first suggestion.
// Against that kernels/gemv.h is measured for as few rows as it takes.
//
// With `same_bits`, a row's sums do not depend on how many rows there are: each shape of weight has one algorithm that
// sums over k in one order, and others, suggested for other numbers of rows, are taken in its place only after they
// gave the same bits on so many random rows.
class CudaMatmul {
 public:
  static absl::StatusOr<std::unique_ptr<CudaMatmul>> Create(bool same_bits);
  ~CudaMatmul();

  // Up to how many rows products are learnt together with those of `rows`.
  static int64_t RowsPlannedFor(int64_t rows);
  // Of cuBLASLt: sums may be ordered otherwise in another version.
  size_t version() const { return lt_.GetVersion(); }
  // Chooses the algorithm for products like this one, whose w is any of `weights` (as many as do not fit into the
  // device's cache, if the model has them). x has as many rows as are planned for alike (RowsPlannedFor). Takes some
  // hundred milliseconds, with `same_bits` memory for x and y once more, and waits for the stream. y is not used.
  absl::Status Learn(MatrixProduct product, std::span<const __nv_bfloat16* const> weights, cudaStream_t stream);
  // Learns first what it has not learnt, from this w alone: not to be captured then.
  absl::Status Run(const MatrixProduct& product, cudaStream_t stream);
  // What was chosen for products like this one, in numbers of cublasLtMatmulAlgoConfigAttributes_t. REQUIRES: learnt.
  std::string Describe(const MatrixProduct& product) const;
  // Whether Run takes kernels/gemv.h, as measured. Its fused form is faster then, too: it saves a launch. Never with
  // `same_bits`, nor for what was not learnt.
  bool PrefersGemv(const MatrixProduct& product) const;

 private:
  using Algorithm = cublasLtMatmulAlgo_t;
  struct Shape {
    int64_t rows, n, k, y_stride;
    bool fp32_output, add, bias;
    auto operator<=>(const Shape&) const = default;
  };

  // How products of one shape are computed.
  struct Choice {
    Algorithm algorithm;
    int64_t gemv_rows = 0;  // up to so many rows kernels/gemv.h is faster
    bool in_parts = false;  // so many rows have their bits only as products of fewer
  };
  struct Timed {
    float ms;
    Algorithm algorithm;
  };

  CudaMatmul(bool same_bits, const CublasLt& lt) : same_bits_(same_bits), lt_(lt) {}
  Shape ShapeOf(const MatrixProduct& product) const;
  // The fastest first, by cuBLASLt's estimate.
  absl::StatusOr<std::vector<Algorithm>> Suggest(const Shape& shape) const;
  // Those that can do every number of rows that is planned for as the shape's; an error if none can.
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
