#include "backend/cuda/cuda_matmul.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/status.h"
#include "kernels/gemv.h"

namespace baton {
namespace {

// The size that NVIDIA recommends for Hopper.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr int kMostSuggested = 8;
constexpr int64_t kFewestRowsPlanned = 8;
constexpr int kRunsTimed = 3;
constexpr size_t kTimedAgain = 8;
constexpr int kRoundsAgain = 4;
// With more rows, a forward pass reaches 90 % of a large product's rate without a measurement.
constexpr int64_t kMostRowsTimed = 512;
// The number of rows for which a weight's reference algorithm (`own`) is suggested. With
// `same_bits`, equal rows must get equal bits at this number of rows. The number is large enough
// for the family of algorithms that prefill uses, which sums in one order for all tiles.
constexpr int64_t kRowsOfOneAlgorithm = 256;

// The description of one product for cuBLASLt, whose matrices are column-major. It therefore
// computes y^T = w x^T.
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

// Measures the time of one product computed in several ways.
class Trial {
 public:
  // Each run computes `product` with another of `weights` and with a y of the Trial.
  Trial(const MatrixProduct& product, std::span<const __nv_bfloat16* const> weights, cudaStream_t stream)
      : product_(product), weights_(weights), stream_(stream) {}
  ~Trial() {
    for (const cudaEvent_t event : {begin_, end_}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  absl::Status Start() {
    const int64_t bytes = product_.rows * product_.YStride() * (product_.fp32_output ? 4 : 2);
    RETURN_IF_ERROR(y_.Reserve(bytes, "timing projections"));
    product_.y = y_.data();
    RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&begin_), "event"));
    return CudaStatus(cudaEventCreate(&end_), "event");
  }
  template <typename Run>
  absl::Status Once(Run run) {
    // The next weight, so that it is not in the cache.
    product_.w = weights_[runs_++ % weights_.size()];
    return run(std::as_const(product_));
  }
  // Returns the milliseconds of one run among `runs` consecutive runs, as projections run in a
  // step. If there are several, an additional first run is not timed. It occupies the device while
  // the host enqueues the others.
  template <typename Run>
  absl::StatusOr<float> Time(Run run, int runs) {
    if (runs > 1) RETURN_IF_ERROR(Once(run));
    cudaEventRecord(begin_, stream_);
    for (int i = 0; i < runs; ++i) RETURN_IF_ERROR(Once(run));
    cudaEventRecord(end_, stream_);
    float ms = 0;
    RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(end_), "timing projections"));
    RETURN_IF_ERROR(CudaStatus(cudaEventElapsedTime(&ms, begin_, end_), "timing projections"));
    return ms / static_cast<float>(runs);
  }

 private:
  MatrixProduct product_;
  const std::span<const __nv_bfloat16* const> weights_;
  const cudaStream_t stream_;
  DeviceBuffer<std::byte> y_;
  size_t runs_ = 0;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// Returns the smallest number of rows that shares its learnt algorithm with `planned` rows.
int64_t FewestPlannedAs(int64_t planned) { return planned == kFewestRowsPlanned ? 1 : planned / 2 + 1; }

// Removes duplicates. cuBLASLt may suggest an algorithm that is also a variant. A duplicate would
// be timed twice and would count twice among the fastest.
void ForgetRepeated(std::vector<cublasLtMatmulAlgo_t>& algorithms) {
  std::vector<cublasLtMatmulAlgo_t> different;
  for (const cublasLtMatmulAlgo_t& algorithm : algorithms) {
    const auto same = [&](const auto& other) { return std::memcmp(&algorithm, &other, sizeof other) == 0; };
    if (std::none_of(different.begin(), different.end(), same)) different.push_back(algorithm);
  }
  algorithms = std::move(different);
}

std::string Words(int64_t rows, int64_t n, int64_t k) {
  return absl::StrCat("[", rows, ", ", k, "] x [", n, ", ", k, "]^T");
}

// Returns random numbers in [-2, -1] and [1, 2], whose sums depend on their order. `one` has the
// bits of 1, and `drawn` marks the bits of sign and mantissa.
template <typename Bits>
std::vector<Bits> RandomBits(int64_t count, Bits one, Bits drawn) {
  std::mt19937 random(1);
  std::vector<Bits> bits(static_cast<size_t>(count));
  for (Bits& value : bits) value = static_cast<Bits>(one | (random() & drawn));
  return bits;
}

// Compares ways to compute a product by the bits of every row, for any index of the row and any
// number of rows. x repeats a few random rows. If y is fp32, the product may be added to it, so y
// repeats random rows, too. Some kernels begin their sums with y, and others end them with it.
class BitComparison {
 public:
  BitComparison(const MatrixProduct& product, cudaStream_t stream) : product_(product), stream_(stream) {}

  // Prepares comparisons of up to `most_rows` rows.
  absl::Status Start(int64_t most_rows) {
    RETURN_IF_ERROR(x_.Reserve(RoundUp(most_rows) * product_.k, kWhat));
    RETURN_IF_ERROR(y_.Reserve(RoundUp(most_rows) * RowBytes(), kWhat));
    before_ = product_.fp32_output ? RandomBits<uint32_t>(kDifferentRows * product_.YStride(), 0x3f800000, 0x807fffff)
                                   : std::vector<uint32_t>();
    const std::vector<uint16_t> x = RandomBits<uint16_t>(kDifferentRows * product_.k, 0x3f80, 0x807f);
    RETURN_IF_ERROR(Repeat(x.data(), kDifferentRows * product_.k * 2, RoundUp(most_rows) / kDifferentRows, x_.data()));
    // Waits, because x goes out of scope.
    return CudaStatus(cudaStreamSynchronize(stream_), kWhat);
  }
  // Returns true if `run` gives equal rows equal bits, and the same bits as the first run that did
  // so. False also if `run` fails.
  template <typename Run>
  absl::StatusOr<bool> Holds(Run run, int64_t rows) {
    MatrixProduct part = product_;
    part.x = x_.data();
    part.y = y_.data();
    part.rows = rows;
    std::vector<std::byte> got(static_cast<size_t>(rows * RowBytes()));
    RETURN_IF_ERROR(Repeat(before_.data(), std::ssize(before_) * 4, RoundUp(rows) / kDifferentRows, y_.data()));
    if (!run(std::as_const(part)).ok()) return false;
    RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(got.data(), y_.data(), got.size(), cudaMemcpyDeviceToHost, stream_), kWhat));
    RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream_), kWhat));
    const bool first = expected_.empty();
    if (first) expected_.assign(got.begin(), got.begin() + std::min(std::ssize(got), kDifferentRows * RowBytes()));
    const bool same = IsExpected(got);
    if (first && !same) expected_.clear();
    return same;
  }

 private:
  static constexpr const char* kWhat = "comparing algorithms";
  static constexpr int64_t kDifferentRows = 8;
  static int64_t RoundUp(int64_t rows) { return (rows + kDifferentRows - 1) / kDifferentRows * kDifferentRows; }
  absl::Status Repeat(const void* from, int64_t bytes, int64_t times, void* to) const {
    for (int64_t i = 0; i < times && bytes > 0; ++i) {
      RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(static_cast<std::byte*>(to) + i * bytes, from,
                                                 static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_),
                                 kWhat));
    }
    return absl::OkStatus();
  }
  int64_t RowBytes() const { return product_.YStride() * (product_.fp32_output ? 4 : 2); }

  bool IsExpected(const std::vector<std::byte>& got) const {
    const auto period = std::ssize(expected_);
    for (int64_t at = 0; at < std::ssize(got); at += period) {
      const auto bytes = static_cast<size_t>(std::min(period, std::ssize(got) - at));
      if (std::memcmp(got.data() + at, expected_.data(), bytes) != 0) return false;
    }
    return true;
  }

  const MatrixProduct product_;
  const cudaStream_t stream_;
  DeviceBuffer<__nv_bfloat16> x_;
  DeviceBuffer<std::byte> y_;
  // The initial y of the different rows. Empty if y is bf16, because no product is added to it
  // then.
  std::vector<uint32_t> before_;
  std::vector<std::byte> expected_;  // results of the different rows
};

}  // namespace

// The smallest number is that of the narrowest tile.
int64_t CudaMatmul::RowsPlannedFor(int64_t rows) {
  return std::max<int64_t>(kFewestRowsPlanned, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows))));
}

cudaError_t RunGemv(const MatrixProduct& product, bool swiglu, cudaStream_t stream) {
  return cuda::LaunchGemv({.x = product.x,
                           .w = product.w,
                           .bias = product.bias,
                           .rows = static_cast<int32_t>(product.rows),
                           .n = static_cast<int32_t>(product.n),
                           .k = static_cast<int32_t>(product.k),
                           .y = product.y,
                           .y_stride = swiglu ? product.n / 2 : product.YStride(),
                           .fp32_output = product.fp32_output,
                           .add = product.add,
                           .swiglu = swiglu},
                          stream);
}

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
  // Any aligned pointer. Only its presence counts.
  if (shape.bias) description.AddBias(workspace_.data());
  cublasLtMatmulPreferenceOpaque_t preference;
  lt_.MatmulPreferenceInit_internal(&preference, sizeof preference);
  lt_.MatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
                                   sizeof kWorkspaceBytes);
  if (same_bits_) {
    const uint32_t whole_sums = CUBLASLT_REDUCTION_SCHEME_NONE;
    lt_.MatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &whole_sums,
                                     sizeof whole_sums);
  }
  std::vector<cublasLtMatmulHeuristicResult_t> results(kMostSuggested);
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

CudaMatmul::Shape CudaMatmul::ShapeOf(const MatrixProduct& product) const {
  return {RowsPlannedFor(product.rows), product.n, product.k, product.YStride(), product.fp32_output, product.add,
          product.bias != nullptr};
}

bool CudaMatmul::IsAble(const Algorithm& algorithm, const Shape& shape, int64_t rows) const {
  Description description(lt_, rows, shape.n, shape.k, shape.y_stride, shape.fp32_output);
  if (shape.bias) description.AddBias(workspace_.data());
  cublasLtMatmulHeuristicResult_t result;
  const cublasStatus_t status = lt_.MatmulAlgoCheck(handle_, &description.product, &description.w, &description.x,
                                                    &description.y, &description.y, &algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.state == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= kWorkspaceBytes;
}

absl::StatusOr<std::vector<CudaMatmul::Algorithm>> CudaMatmul::Able(const std::vector<Algorithm>& algorithms,
                                                                    const Shape& shape) const {
  const int64_t fewest = FewestPlannedAs(shape.rows);
  std::vector<int64_t> rows = {shape.rows};
  // Row counts of every alignment.
  for (int64_t more = 1; fewest - 1 + more <= shape.rows; more *= 2) rows.push_back(fewest - 1 + more);
  std::vector<Algorithm> able;
  for (const Algorithm& algorithm : algorithms) {
    const bool all =
        std::all_of(rows.begin(), rows.end(), [&](int64_t count) { return IsAble(algorithm, shape, count); });
    if (all) able.push_back(algorithm);
  }
  if (!able.empty()) return able;
  return absl::InternalError(absl::StrCat("cuBLASLt: no algorithm for ", Words(shape.rows, shape.n, shape.k)));
}

absl::Status CudaMatmul::Learn(MatrixProduct product, std::span<const __nv_bfloat16* const> weights,
                               cudaStream_t stream) {
  const Shape shape = ShapeOf(product);
  if (choices_.contains(shape)) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::vector<Algorithm> candidates, Suggest(shape));
  Shape own_shape = shape;
  own_shape.rows = kRowsOfOneAlgorithm;
  ASSIGN_OR_RETURN(const std::vector<Algorithm> own, Suggest(own_shape));
  Choice choice;
  if (shape.rows <= kMostRowsTimed) {
    const std::vector<Algorithm> variants = VariantsOf(own.front());
    candidates.insert(candidates.end(), variants.begin(), variants.end());
  }
  if (same_bits_) candidates.push_back(own.front());
  ASSIGN_OR_RETURN(candidates, Able(candidates, shape));
  ForgetRepeated(candidates);
  const bool beside_gemv = !same_bits_ && shape.rows == kFewestRowsPlanned;
  if (beside_gemv || (candidates.size() > 1 && shape.rows <= kMostRowsTimed)) {
    ASSIGN_OR_RETURN(const std::vector<Timed> timed, FastestFirst(product, weights, candidates, stream));
    candidates.clear();
    for (const Timed& t : timed) candidates.push_back(t.algorithm);
    if (beside_gemv) {
      ASSIGN_OR_RETURN(choice.gemv_rows, RowsForGemv(product, weights, timed.front().ms, stream));
    }
  }
  choice.algorithm = candidates.front();
  if (same_bits_) {
    product.w = weights.front();
    ASSIGN_OR_RETURN(const auto same, FirstWithOwnBits(own, product, candidates, stream));
    if (!same.has_value() && shape.rows <= kRowsOfOneAlgorithm) {
      return absl::InternalError(absl::StrCat("--same-bits: cuBLASLt has no algorithm that gives a row of ",
                                              Words(shape.rows, product.n, product.k),
                                              " the same bits for every number of rows. Start without --same-bits"));
    }
    choice.in_parts = !same.has_value();
    choice.algorithm = same.value_or(choice.algorithm);
    if (choice.in_parts) {
      spdlog::info("projections {}: computed in parts of {} rows (--same-bits)",
                   Words(shape.rows, product.n, product.k), kRowsOfOneAlgorithm);
    }
  }
  choices_.emplace(shape, choice);
  return absl::OkStatus();
}

// Times each candidate once, and then the best candidates again. The least time counts, because
// other work can only add to it. Candidates that cannot run are left out.
absl::StatusOr<std::vector<CudaMatmul::Timed>> CudaMatmul::FastestFirst(const MatrixProduct& product,
                                                                        std::span<const __nv_bfloat16* const> weights,
                                                                        const std::vector<Algorithm>& candidates,
                                                                        cudaStream_t stream) const {
  Trial trial(product, weights, stream);
  RETURN_IF_ERROR(trial.Start());
  const auto with = [&](const Algorithm& algorithm) {
    return [&](const MatrixProduct& run) { return RunWith(algorithm, run, stream); };
  };
  const auto faster = [](const Timed& a, const Timed& b) { return a.ms < b.ms; };
  std::vector<Timed> timed;
  for (const Algorithm& algorithm : candidates) {
    // A first run loads the algorithm. Candidates that cannot run are skipped.
    if (!trial.Once(with(algorithm)).ok()) continue;
    ASSIGN_OR_RETURN(const float ms, trial.Time(with(algorithm), 1));
    timed.push_back({ms, algorithm});
  }
  if (timed.empty()) {
    return absl::InternalError(absl::StrCat("no algorithm for ", Words(product.rows, product.n, product.k)));
  }
  std::sort(timed.begin(), timed.end(), faster);
  const size_t again = std::min(timed.size(), kTimedAgain);
  for (int round = 0; round < kRoundsAgain; ++round) {
    for (size_t i = 0; i < again; ++i) {
      ASSIGN_OR_RETURN(const float ms, trial.Time(with(timed[i].algorithm), kRunsTimed));
      timed[i].ms = std::min(timed[i].ms, ms);
    }
  }
  std::sort(timed.begin(), timed.begin() + static_cast<int64_t>(again), faster);
  return timed;
}

// Returns the largest number of rows of a decode step for which kernels/gemv.h takes at most
// `ms_to_beat`. 0 if there is none. The algorithm to beat takes `ms_to_beat` for every such number
// of rows.
absl::StatusOr<int64_t> CudaMatmul::RowsForGemv(const MatrixProduct& product,
                                                std::span<const __nv_bfloat16* const> weights, float ms_to_beat,
                                                cudaStream_t stream) const {
  static_assert(cuda::kMaxGemvRows == kFewestRowsPlanned);
  const auto gemv = [&](const MatrixProduct& run) {
    return CudaStatus(RunGemv(run, false, stream), "timing projections");
  };
  MatrixProduct part = product;
  for (; part.rows >= 1; part.rows /= 2) {
    Trial trial(part, weights, stream);
    RETURN_IF_ERROR(trial.Start());
    // This number of rows does not fit.
    if (!trial.Once(gemv).ok()) continue;
    for (int round = 0; round <= kRoundsAgain; ++round) {
      ASSIGN_OR_RETURN(const float ms, trial.Time(gemv, kRunsTimed));
      if (ms > ms_to_beat) continue;
      spdlog::info("projections of up to {} rows by [{}, {}]: computed by gemv in {:.1f} us (cuBLASLt: {:.1f} us)",
                   part.rows, product.n, product.k, 1e3 * ms, 1e3 * ms_to_beat);
      return part.rows;
    }
  }
  return 0;
}

bool CudaMatmul::PrefersGemv(const MatrixProduct& product) const {
  if (same_bits_ || product.rows > cuda::kMaxGemvRows) return false;
  const auto known = choices_.find(ShapeOf(product));
  return known != choices_.end() && product.rows <= known->second.gemv_rows;
}

// Returns the same kernel with each of its tiles. Each tile comes twice: with the cluster shape of
// `algorithm`, and without clusters. A tile decides the split of rows and columns, and seldom the
// order of a sum.
std::vector<CudaMatmul::Algorithm> CudaMatmul::VariantsOf(const Algorithm& algorithm) const {
  uint32_t tiles[CUBLASLT_MATMUL_TILE_END];
  size_t bytes = 0;
  if (lt_.MatmulAlgoCapGetAttribute(&algorithm, CUBLASLT_ALGO_CAP_TILE_IDS, tiles, sizeof tiles, &bytes) !=
      CUBLAS_STATUS_SUCCESS) {
    return {};
  }
  std::vector<Algorithm> variants;
  for (size_t i = 0; i < bytes / sizeof tiles[0]; ++i) {
    Algorithm variant = algorithm;
    lt_.MatmulAlgoConfigSetAttribute(&variant, CUBLASLT_ALGO_CONFIG_TILE_ID, &tiles[i], sizeof tiles[i]);
    variants.push_back(variant);
    const uint16_t alone = CUBLASLT_CLUSTER_SHAPE_1x1x1;
    lt_.MatmulAlgoConfigSetAttribute(&variant, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &alone, sizeof alone);
    variants.push_back(variant);
  }
  return variants;
}

// Returns the first candidate that gives each row the bits that the weight's reference algorithm
// gives it. A candidate is tried with five of the numbers of rows that share the shape's algorithm.
// The reference algorithm is the first of `own` that gives equal rows equal bits. Returns nullopt
// if no candidate qualifies.
absl::StatusOr<std::optional<CudaMatmul::Algorithm>> CudaMatmul::FirstWithOwnBits(
    const std::vector<Algorithm>& own, const MatrixProduct& product, const std::vector<Algorithm>& candidates,
    cudaStream_t stream) const {
  BitComparison comparison(product, stream);
  const int64_t planned = RowsPlannedFor(product.rows);
  RETURN_IF_ERROR(comparison.Start(std::max(planned, kRowsOfOneAlgorithm)));
  const auto holds = [&](const Algorithm& algorithm, std::initializer_list<int64_t> all_rows) -> absl::StatusOr<bool> {
    for (const int64_t rows : all_rows) {
      ASSIGN_OR_RETURN(
          const bool same,
          comparison.Holds([&](const MatrixProduct& part) { return RunWith(algorithm, part, stream); }, rows));
      if (!same) return false;
    }
    return true;
  };
  bool found = false;
  for (size_t i = 0; i < own.size() && !found; ++i) {
    ASSIGN_OR_RETURN(found, holds(own[i], {kRowsOfOneAlgorithm}));
  }
  if (!found) {
    return absl::InternalError(absl::StrCat("--same-bits: cuBLASLt has no algorithm that gives equal rows of ",
                                            Words(kRowsOfOneAlgorithm, product.n, product.k),
                                            " equal bits. Start without --same-bits"));
  }
  for (const Algorithm& algorithm : candidates) {
    ASSIGN_OR_RETURN(const bool same, holds(algorithm, {planned, FewestPlannedAs(planned), planned * 5 / 8,
                                                        planned * 3 / 4, planned * 7 / 8}));
    if (same) return algorithm;
  }
  return std::nullopt;
}

std::string CudaMatmul::Describe(const MatrixProduct& product) const {
  const Algorithm& algorithm = choices_.at(ShapeOf(product)).algorithm;
  std::string text;
  for (const auto& [name, attribute] : {std::pair{"id", CUBLASLT_ALGO_CONFIG_ID},
                                        {"tile", CUBLASLT_ALGO_CONFIG_TILE_ID},
                                        {"split-k", CUBLASLT_ALGO_CONFIG_SPLITK_NUM},
                                        {"reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME},
                                        {"swizzling", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING},
                                        {"custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION},
                                        {"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID},
                                        {"inner", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID},
                                        {"cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID}}) {
    // Initialised, because some attributes have 16 bits.
    uint32_t value = 0;
    size_t bytes = 0;
    lt_.MatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &bytes);
    absl::StrAppend(&text, text.empty() ? "" : " ", name, " ", value);
  }
  return text;
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

absl::Status CudaMatmul::RunInParts(const MatrixProduct& product, cudaStream_t stream) {
  const int64_t y_bytes = product.fp32_output ? 4 : 2;
  for (int64_t row = 0; row < product.rows; row += kRowsOfOneAlgorithm) {
    MatrixProduct part = product;
    part.rows = std::min(kRowsOfOneAlgorithm, product.rows - row);
    part.x = product.x + row * product.k;
    part.y = static_cast<std::byte*>(product.y) + row * product.YStride() * y_bytes;
    RETURN_IF_ERROR(Run(part, stream));
  }
  return absl::OkStatus();
}

absl::Status CudaMatmul::Run(const MatrixProduct& product, cudaStream_t stream) {
  auto known = choices_.find(ShapeOf(product));
  if (known == choices_.end()) {
    RETURN_IF_ERROR(Learn(product, {{product.w}}, stream));
    known = choices_.find(ShapeOf(product));
  }
  if (known->second.in_parts) return RunInParts(product, stream);
  if (product.rows <= known->second.gemv_rows) return CudaStatus(RunGemv(product, false, stream), "a projection");
  return RunWith(known->second.algorithm, product, stream);
}

}  // namespace baton
