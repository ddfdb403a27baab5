// Projections by cuBLASLt, with the algorithms that the backend chooses.
#include <memory>

#include "backend/cuda/cuda_matmul.h"
#include "base/check.h"
#include "test/kernels/device_array.h"
#include "test/kernels/kernel_case.h"
#include "test/kernels/projection.h"
#include "test/kernels/random_values.h"

namespace baton::cuda {
namespace {

void MustBeOk(const absl::Status& status) { BATON_CHECK(status.ok(), status.ToString()); }

MatrixProduct ProductOf(const GemvArgs& args) {
  return {.x = args.x,
          .w = args.w,
          .bias = args.bias,
          .y = args.y,
          .rows = args.rows,
          .n = args.n,
          .k = args.k,
          .y_stride = args.y_stride,
          .fp32_output = args.fp32_output,
          .add = args.add};
}

// Both ways to choose an algorithm. For few rows, `fastest` may choose kernels/gemv.h. `same_bits`
// never does.
struct Matmuls {
  std::shared_ptr<CudaMatmul> fastest = CudaMatmul::Create(/*same_bits=*/false).value();
  std::shared_ptr<CudaMatmul> same_bits = CudaMatmul::Create(/*same_bits=*/true).value();
};

KernelCase Check(const Matmuls& matmuls, bool same_bits, const ProjectionForm& form, int32_t rows, int32_t n, int32_t k,
                 std::mt19937_64& random) {
  const std::shared_ptr<CudaMatmul> matmul = same_bits ? matmuls.same_bits : matmuls.fastest;
  const auto problem = std::make_shared<const ProjectionProblem>(form, rows, n, k, random);
  MatrixProduct learnt = ProductOf(problem->Args());
  learnt.rows = CudaMatmul::RowsPlannedFor(rows);
  const DeviceArray<Bf16> learnt_x(RandomBf16(learnt.rows * k, random));
  learnt.x = learnt_x.data();
  MustBeOk(matmul->Learn(learnt, {{learnt.w}}, nullptr));
  KernelCase result;
  result.name = "product " + problem->Name() + (same_bits ? ", same bits" : "");
  // Tensor cores truncate addends. Sums over parts of k may meet in bf16, except with same bits.
  if (form.fp32) result.tolerance = 1e-4;
  if (!form.fp32 && !same_bits) result.tolerance *= 2;
  result.launch = [=](cudaStream_t stream) {
    const cudaError_t prepared = problem->Prepare(stream);
    if (prepared != cudaSuccess) return prepared;
    MustBeOk(matmul->Run(ProductOf(problem->Args()), stream));
    return cudaSuccess;
  };
  result.error = [problem] { return problem->Error(problem->Expected()); };
  return result;
}

KernelCase Bench(const std::shared_ptr<CudaMatmul>& matmul, const ProjectionForm& form, int32_t rows, int32_t n,
                 int32_t k, const BenchWeights& weights, std::mt19937_64& random) {
  const DeviceArray<Bf16> x = RepeatedBf16(int64_t{rows} * k, random);
  const int64_t y_bytes = (form.fp32 ? 4 : 2) * int64_t{rows} * n;
  const DeviceArray<std::byte> y(y_bytes);
  Must(cudaMemset(y.data(), 0, y.size()));
  MatrixProduct product = {.x = x.data(), .y = y.data(), .rows = rows, .n = n, .k = k};
  product.fp32_output = form.fp32;
  product.add = form.add;
  std::vector<const Bf16*> copies;
  for (int64_t i = 0; i < weights.copies(); ++i) copies.push_back(weights.Copy(i));
  MustBeOk(matmul->Learn(product, copies, nullptr));
  const auto launches = std::make_shared<int64_t>(0);
  KernelCase result;
  result.name = "product " + std::to_string(rows) + " x " + std::to_string(k) + " by " + std::to_string(n) + form.name;
  result.flops = 2.0 * rows * n * k;
  result.bytes = 2.0 * k * (double(n) + rows) + (form.add ? 2.0 : 1.0) * static_cast<double>(y_bytes);
  result.launch = [=, keep = std::pair(x, y)](cudaStream_t stream) {
    MatrixProduct run = product;
    run.w = weights.Copy((*launches)++);
    MustBeOk(matmul->Run(run, stream));
    return cudaSuccess;
  };
  return result;
}

struct Weight {
  int32_t n, k;
  ProjectionForm form;
};

// The projections of Llama-3.1-8B, for row counts that kernels/gemv.h does not support. All tokens
// of a prompt pass the layers' projections, but only sampled tokens pass the head.
std::vector<KernelCase> BenchCases(std::mt19937_64& random) {
  const std::shared_ptr<CudaMatmul> matmul = CudaMatmul::Create(/*same_bits=*/false).value();
  std::vector<KernelCase> cases;
  for (const auto& [n, k, form] : {Weight{6144, 4096, kPlain},
                                   {4096, 4096, kAdd},
                                   {28672, 4096, kPlain},
                                   {4096, 14336, kAdd},
                                   {128256, 4096, kFp32}}) {
    const BenchWeights weights(n, k, random);
    for (const int32_t rows : {16, 64, 256, 8192}) {
      if (n == 128256 && rows > 256) continue;
      cases.push_back(Bench(matmul, form, rows, n, k, weights, random));
    }
  }
  return cases;
}

}  // namespace

std::vector<KernelCase> ProductCases(CaseSize size, uint64_t seed) {
  std::mt19937_64 random(seed);
  if (size == CaseSize::kBench) return BenchCases(random);
  const Matmuls matmuls;
  std::vector<KernelCase> cases;
  // Rows of y are aligned, because models ask cuBLASLt only for aligned rows.
  const ProjectionForm forms[] = {
      kPlain, kAdd, kBias, {.name = " fp32", .bias = false, .fp32 = true, .add = false, .swiglu = false, .padding = 8}};
  for (const ProjectionForm& form : forms) {
    for (const auto& [n, k] : {std::pair{960, 576}, {576, 1536}, {136, 64}}) {
      // Each seed gives one shape with few rows, one with some rows and one with many rows.
      constexpr uint32_t kMost[] = {kMaxGemvRows, 64, 300};
      const auto rows = static_cast<int32_t>(random() % kMost[(cases.size() + seed) % std::size(kMost)] + 1);
      const bool same_bits = rows <= kMaxGemvRows || random() % 2 == 0;
      cases.push_back(Check(matmuls, same_bits, form, rows, n, k, random));
    }
  }
  return cases;
}

}  // namespace baton::cuda
