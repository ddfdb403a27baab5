#include "backend/cuda/cuda_matmul.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace baton {
namespace {

// What NVIDIA recommends for Hopper.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr int kMostSuggested = 256;
// Same bits: the rows that a weight's own algorithm is suggested for, and on which others are compared with it. So many
// that it is of the family that prefill uses, which sums in one order for all tiles.
constexpr int64_t kRowsOfOneAlgorithm = 256;

// What describes one product to cuBLASLt, whose matrices are column-major: it computes y^T = w x^T.
class Description {
 public:
  Description(const CublasLt& lt, int64_t rows, int64_t n, int64_t k, int64_t y_stride, bool fp32_output) : lt_(lt) {
    lt.MatmulDescInit_internal(&product, sizeof product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const cublasOperation_t transpose = CUBLAS_OP_T;
    lt.MatmulDescSetAttribute(&product, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose);
    lt.MatrixLayoutInit_internal(&w, sizeof w, CUDA_R_16BF, k, n, k);
    lt.MatrixLayoutInit_internal(&x, sizeof x, CUDA_R_16BF, k, rows, k);
    lt.MatrixLayoutInit_internal(&y, sizeof y, fp32_output ? CUDA_R_32F : CUDA_R_16BF, n, rows, y_stride);
  }
  void AddBias(const void* bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    lt_.MatmulDescSetAttribute(&product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    lt_.MatmulDescSetAttribute(&product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(const void*));
  }

  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t w, x, y;

 private:
  const CublasLt& lt_;
};

// Neighbouring row counts are planned for as one: powers of two for decode, multiples of 256 for prefill.
int64_t RowsToPlanFor(int64_t rows, bool same_bits) {
  if (same_bits || rows <= 256) return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
  return (rows + 255) / 256 * 256;
}

std::string Words(int64_t rows, int64_t n, int64_t k) {
  return absl::StrCat("[", rows, ", ", k, "] by [", n, ", ", k, "] transposed");
}

// Random bf16 in [-2, -1] and [1, 2], whose sums depend on their order.
std::vector<uint16_t> RandomRows(int64_t count) {
  std::minstd_rand random(1);
  std::vector<uint16_t> bits(static_cast<size_t>(count));
  for (uint16_t& value : bits) value = static_cast<uint16_t>(0x3f80 | (random() >> 8 & 0x807f));
  return bits;
}

}  // namespace

absl::Status CudaMatmul::Error(cublasStatus_t status, const std::string& what) const {
  return absl::InternalError(absl::StrCat("cuBLASLt: ", what, ": ", lt_.GetStatusString(status)));
}

absl::StatusOr<std::unique_ptr<CudaMatmul>> CudaMatmul::Create(bool same_bits) {
  ASSIGN_OR_RETURN(const CublasLt* lt, LoadCublasLt());
  std::unique_ptr<CudaMatmul> matmul(new CudaMatmul(same_bits, *lt));
  const cublasStatus_t status = lt->Create(&matmul->handle_);
  if (status != CUBLAS_STATUS_SUCCESS) return matmul->Error(status, "cannot start");
  RETURN_IF_ERROR(matmul->workspace_.Reserve(kWorkspaceBytes, "workspace of the projections"));
  return matmul;
}

CudaMatmul::~CudaMatmul() {
  if (handle_ != nullptr) lt_.Destroy(handle_);
}

absl::StatusOr<std::vector<CudaMatmul::Algorithm>> CudaMatmul::Suggest(const Shape& shape) const {
  Description description(lt_, shape.rows, shape.n, shape.k, shape.y_stride, shape.fp32_output);
  if (shape.bias) description.AddBias(workspace_.data());  // any aligned pointer: only that there is one counts
  cublasLtMatmulPreferenceOpaque_t preference;
  lt_.MatmulPreferenceInit_internal(&preference, sizeof preference);
  lt_.MatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
                                   sizeof kWorkspaceBytes);
  if (same_bits_) {
    const uint32_t whole_sums = CUBLASLT_REDUCTION_SCHEME_NONE;
    lt_.MatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &whole_sums,
                                     sizeof whole_sums);
  }
  std::vector<cublasLtMatmulHeuristicResult_t> results(same_bits_ ? kMostSuggested : 1);
  int found = 0;
  const cublasStatus_t status =
      lt_.MatmulAlgoGetHeuristic(handle_, &description.product, &description.w, &description.x, &description.y,
                                 &description.y, &preference, static_cast<int>(results.size()), results.data(), &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
    return Error(status, absl::StrCat("no algorithm for ", Words(shape.rows, shape.n, shape.k)));
  }
  std::vector<Algorithm> algorithms;
  for (int i = 0; i < found; ++i) algorithms.push_back(results[i].algo);
  return algorithms;
}

absl::StatusOr<CudaMatmul::Algorithm> CudaMatmul::AlgorithmFor(const MatrixProduct& product, cudaStream_t stream) {
  const int64_t rows = RowsToPlanFor(product.rows, same_bits_);
  const Shape shape = {
      rows, product.n, product.k, product.YStride(), product.fp32_output, product.add, product.bias != nullptr};
  const auto known = algorithms_.find(shape);
  if (known != algorithms_.end()) return known->second;
  ASSIGN_OR_RETURN(std::vector<Algorithm> suggested, Suggest(shape));
  Algorithm algorithm = suggested.front();
  if (same_bits_) {
    ASSIGN_OR_RETURN(algorithm, ChooseSameBits(product, shape, stream));
  }
  algorithms_.emplace(shape, algorithm);
  return algorithm;
}

// The first of those suggested for the shape that gives each of some random rows what the weight's own algorithm gives
// it.
absl::StatusOr<CudaMatmul::Algorithm> CudaMatmul::ChooseSameBits(const MatrixProduct& product, Shape shape,
                                                                 cudaStream_t stream) const {
  ASSIGN_OR_RETURN(const std::vector<Algorithm> suggested, Suggest(shape));
  const int64_t rows = std::clamp(shape.rows, int64_t{1}, kRowsOfOneAlgorithm);
  shape.rows = kRowsOfOneAlgorithm;
  ASSIGN_OR_RETURN(const std::vector<Algorithm> own, Suggest(shape));

  const std::vector<uint16_t> x = RandomRows(kRowsOfOneAlgorithm * product.k);
  DeviceBuffer<__nv_bfloat16> x_on_device;
  DeviceBuffer<std::byte> y;
  const int64_t row_bytes = product.YStride() * (product.fp32_output ? 4 : 2);
  RETURN_IF_ERROR(x_on_device.Reserve(kRowsOfOneAlgorithm * product.k, "comparing algorithms"));
  RETURN_IF_ERROR(y.Reserve(kRowsOfOneAlgorithm * row_bytes, "comparing algorithms"));
  RETURN_IF_ERROR(
      CudaStatus(cudaMemcpy(x_on_device.data(), x.data(), 2 * x.size(), cudaMemcpyHostToDevice), "comparing"));
  // Of the first `count` rows; empty: it cannot.
  const auto run = [&](const Algorithm& algorithm, int64_t count) -> absl::StatusOr<std::vector<std::byte>> {
    MatrixProduct part = product;
    part.x = x_on_device.data();
    part.y = y.data();
    part.rows = count;
    RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(y.data(), 0, static_cast<size_t>(y.capacity()), stream), "comparing"));
    if (!RunWith(algorithm, part, stream).ok()) return std::vector<std::byte>{};
    std::vector<std::byte> got(static_cast<size_t>(rows * row_bytes));
    RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream), "comparing algorithms"));
    RETURN_IF_ERROR(CudaStatus(cudaMemcpy(got.data(), y.data(), got.size(), cudaMemcpyDeviceToHost), "comparing"));
    return got;
  };
  ASSIGN_OR_RETURN(const std::vector<std::byte> expected, run(own.front(), kRowsOfOneAlgorithm));
  for (const Algorithm& algorithm : suggested) {
    ASSIGN_OR_RETURN(const std::vector<std::byte> got, run(algorithm, rows));
    if (got == expected) return algorithm;
  }
  return own.front();
}

absl::Status CudaMatmul::RunWith(const Algorithm& algorithm, const MatrixProduct& product, cudaStream_t stream) const {
  Description description(lt_, product.rows, product.n, product.k, product.YStride(), product.fp32_output);
  if (product.bias != nullptr) description.AddBias(product.bias);
  const float one = 1, beta = product.add ? 1 : 0;
  const cublasStatus_t status = lt_.Matmul(handle_, &description.product, &one, product.w, &description.w, product.x,
                                           &description.x, &beta, product.y, &description.y, product.y, &description.y,
                                           &algorithm, workspace_.data(), kWorkspaceBytes, stream);
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return Error(status, Words(product.rows, product.n, product.k));
}

absl::Status CudaMatmul::Run(const MatrixProduct& product, cudaStream_t stream) {
  ASSIGN_OR_RETURN(const Algorithm algorithm, AlgorithmFor(product, stream));
  return RunWith(algorithm, product, stream);
}

}  // namespace baton
