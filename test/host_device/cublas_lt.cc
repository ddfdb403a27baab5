// cuBLASLt with one algorithm, whose order of summation does not depend on the number of rows.
#include "backend/cuda/cublas_lt.h"

#include <cuda_bf16.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "host_device/stream.h"

namespace baton {
namespace {

std::atomic<int64_t> suggestions = 0;

constexpr int64_t kLanes = 8;  // k is a multiple of kLanes

struct Product {
  cublasOperation_t transpose;  // of w
  cublasLtEpilogue_t epilogue;
  const __nv_bfloat16* bias;
};
struct Matrix {
  cudaDataType type;
  int64_t rows, columns, stride;
};

template <typename T, typename Opaque>
void Put(const T& value, Opaque* opaque) {
  static_assert(sizeof value <= sizeof *opaque);
  std::memcpy(opaque->data, &value, sizeof value);
}
template <typename T, typename Opaque>
T Get(const Opaque* opaque) {
  T value;
  std::memcpy(&value, opaque->data, sizeof value);
  return value;
}

cublasStatus_t Create(cublasLtHandle_t* handle) {
  *handle = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t Destroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
const char* GetStatusString(cublasStatus_t) { return "refused by test/host_device"; }
size_t GetVersion() { return 0; }

cublasStatus_t InitProduct(cublasLtMatmulDesc_t product, size_t, cublasComputeType_t, cudaDataType_t) {
  Put(Product{CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr}, product);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t SetProduct(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const void* value,
                          size_t bytes) {
  auto described = Get<Product>(product);
  const auto take = [&](auto& field) {
    BATON_CHECK(bytes == sizeof field, "an attribute of a product has its size");
    std::memcpy(&field, value, sizeof field);
  };
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) take(described.transpose);
  if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE) take(described.epilogue);
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER) take(described.bias);
  Put(described, product);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t InitMatrix(cublasLtMatrixLayout_t matrix, size_t, cudaDataType type, uint64_t rows, uint64_t columns,
                          int64_t stride) {
  Put(Matrix{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), stride}, matrix);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t InitPreference(cublasLtMatmulPreference_t, size_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t SetPreference(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Suggest(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
                       cublasLtMatmulHeuristicResult_t* results, int* found) {
  ++suggestions;
  results[0] = {};
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t Check(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t*,
                     cublasLtMatmulHeuristicResult_t* result) {
  *result = {};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t GetCapability(const cublasLtMatmulAlgo_t*, cublasLtMatmulAlgoCapAttributes_t, void*, size_t, size_t*) {
  return CUBLAS_STATUS_NOT_SUPPORTED;  // this library has one tile size only
}
cublasStatus_t GetConfig(const cublasLtMatmulAlgo_t*, cublasLtMatmulAlgoConfigAttributes_t, void*, size_t, size_t*) {
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t SetConfig(cublasLtMatmulAlgo_t*, cublasLtMatmulAlgoConfigAttributes_t, const void*, size_t) {
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

std::vector<float> Widen(const __nv_bfloat16* values, int64_t count) {
  std::vector<float> wide(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) wide[static_cast<size_t>(i)] = __bfloat162float(values[i]);
  return wide;
}

float Dot(const float* a, const float* b, int64_t k) {
  float sums[kLanes] = {};
  for (int64_t i = 0; i < k; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (const float lane : sums) sum += lane;
  return sum;
}

void CheckProduct(const Product& product, const Matrix& w, const Matrix& x, const Matrix& y) {
  BATON_CHECK(product.transpose == CUBLAS_OP_T, "w is transposed");
  BATON_CHECK((product.epilogue == CUBLASLT_EPILOGUE_BIAS) == (product.bias != nullptr), "a bias is added");
  BATON_CHECK(w.type == CUDA_R_16BF && x.type == CUDA_R_16BF, "bf16 is multiplied");
  BATON_CHECK(w.rows == x.rows && w.stride == w.rows && x.stride == x.rows && w.rows % kLanes == 0,
              "shapes of w and x");
  BATON_CHECK(y.rows == w.columns && y.columns == x.columns && y.stride >= y.rows, "the shape of y");
}

// Computes y^T = w x^T in column order. In row order, this is y [rows, n] = x [rows, k] w [n, k]^T.
cublasStatus_t Multiply(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha, const void* w,
                        cublasLtMatrixLayout_t w_layout, const void* x, cublasLtMatrixLayout_t x_layout,
                        const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* y,
                        cublasLtMatrixLayout_t y_layout, const cublasLtMatmulAlgo_t*, void* workspace, size_t,
                        cudaStream_t stream) {
  const auto in = Get<Matrix>(x_layout), weight = Get<Matrix>(w_layout), out = Get<Matrix>(y_layout);
  const float kept = *static_cast<const float*>(beta);
  const bool add = kept == 1;
  const __nv_bfloat16* bias = Get<Product>(product).bias;
  CheckProduct(Get<Product>(product), weight, in, out);
  BATON_CHECK(c == y && c_layout == y_layout, "what is added to is overwritten");
  BATON_CHECK(*static_cast<const float*>(alpha) == 1 && (add || kept == 0), "a product is added or not");
  BATON_CHECK(!add || out.type == CUDA_R_32F, "what is added to is fp32");
  host_device::CheckOnDevice({w, x, y, bias, workspace});
  const cudaError_t enqueued = host_device::Enqueue(stream, [=] {
    const int64_t k = in.rows, rows = in.columns, n = weight.columns;
    const std::vector<float> inputs = Widen(static_cast<const __nv_bfloat16*>(x), rows * k);
    for (int64_t column = 0; column < n; ++column) {
      const std::vector<float> weights = Widen(static_cast<const __nv_bfloat16*>(w) + column * k, k);
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t at = row * out.stride + column;
        float sum = Dot(&inputs[static_cast<size_t>(row * k)], weights.data(), k);
        if (bias != nullptr) sum += __bfloat162float(bias[column]);
        if (out.type != CUDA_R_32F) {
          static_cast<__nv_bfloat16*>(y)[at] = __float2bfloat16_rn(sum);
        } else {
          float& target = static_cast<float*>(y)[at];
          target = add ? target + sum : sum;
        }
      }
    }
  });
  return enqueued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace

int64_t host_device::Suggestions() { return suggestions; }

absl::StatusOr<const CublasLt*> LoadCublasLt() {
  static const CublasLt lt = {.Create = Create,
                              .Destroy = Destroy,
                              .GetStatusString = GetStatusString,
                              .GetVersion = GetVersion,
                              .Matmul = Multiply,
                              .MatmulAlgoCapGetAttribute = GetCapability,
                              .MatmulAlgoCheck = Check,
                              .MatmulAlgoConfigGetAttribute = GetConfig,
                              .MatmulAlgoConfigSetAttribute = SetConfig,
                              .MatmulAlgoGetHeuristic = Suggest,
                              .MatmulDescInit_internal = InitProduct,
                              .MatmulDescSetAttribute = SetProduct,
                              .MatrixLayoutInit_internal = InitMatrix,
                              .MatmulPreferenceInit_internal = InitPreference,
                              .MatmulPreferenceSetAttribute = SetPreference};
  return &lt;
}

}  // namespace baton
