// Projections of few rows, with bias, activation and sum.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "kernels/gemv.h"
#include "kernels/rms_norm.h"
#include "test/kernels/device_array.h"
#include "test/kernels/kernel_case.h"
#include "test/kernels/projection.h"
#include "test/kernels/random_values.h"

namespace baton::cuda {
namespace {

constexpr ProjectionForm kForms[] = {
    kPlain,
    kAdd,
    kFp32,
    kSwiGlu,
    kBias,
    {.name = " bias fp32", .bias = true, .fp32 = true, .add = false, .swiglu = false, .padding = 3},
    {.name = " bias swiglu", .bias = true, .fp32 = false, .add = false, .swiglu = true, .padding = 8},
};

KernelCase Check(const ProjectionForm& form, int32_t rows, int32_t n, int32_t k, std::mt19937_64& random) {
  const auto problem = std::make_shared<const ProjectionProblem>(form, rows, n, k, random);
  KernelCase result;
  result.name = "gemv " + problem->Name();
  if (form.fp32) result.tolerance = 1e-5;
  result.launch = [problem](cudaStream_t stream) {
    const cudaError_t prepared = problem->Prepare(stream);
    if (prepared != cudaSuccess) return prepared;
    return LaunchGemv(problem->Args(), stream);
  };
  result.error = [problem] { return problem->Error(problem->Expected()); };
  return result;
}

template <typename T>
double Different(const DeviceArray<T>& a, const DeviceArray<T>& b) {
  const std::vector<T> x = a.ToHost(), y = b.ToHost();
  return std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0 ? 0 : 1;
}

// Compares each row alone with the same row of a batch, bit by bit.
KernelCase Apart(int32_t rows, int32_t n, int32_t k, std::mt19937_64& random) {
  const auto problem = std::make_shared<const ProjectionProblem>(kPlain, rows, n, k, random);
  const DeviceArray<Bf16> y(problem->before.size());
  KernelCase result;
  result.name = "gemv " + problem->Name() + ", rows apart";
  result.tolerance = 0;
  result.launch = [=](cudaStream_t stream) {
    GemvArgs args = problem->Args();
    cudaError_t status = LaunchGemv(args, stream);
    args.rows = 1;
    for (int32_t row = 0; row < rows && status == cudaSuccess; ++row) {
      args.x = problem->device_x.data() + int64_t{row} * k;
      args.y = y.data() + int64_t{row} * n;
      status = LaunchGemv(args, stream);
    }
    return status;
  };
  result.error = [=] { return Different(problem->y16, y); };
  return result;
}

// A chain of layers, each of which reads the output of the layer before and overwrites that layer's
// input. In a graph, each layer starts before the layer before has ended. The graph's bits must
// equal those of the layers one at a time.
KernelCase Chain(int32_t rows, std::mt19937_64& random) {
  constexpr int32_t kHidden = 512, kFfn = 1536;
  constexpr int kLayers = 20;
  const auto up = std::make_shared<const ProjectionProblem>(kSwiGlu, rows, 2 * kFfn, kHidden, random);
  const auto down = std::make_shared<const ProjectionProblem>(kAdd, rows, kHidden, kFfn, random);
  const DeviceArray<Bf16> norm(RandomBf16(kHidden, random)), normalised(size_t(rows) * kHidden);
  const DeviceArray<float> start(RandomFloats(int64_t{rows} * kHidden, random)), hidden(start.size());
  const auto run = [=](cudaStream_t stream, bool wait) {
    cudaError_t status =
        cudaMemcpyAsync(hidden.data(), start.data(), 4 * hidden.size(), cudaMemcpyDeviceToDevice, stream);
    GemvArgs first = up->Args(), second = down->Args();
    first.x = normalised.data();
    second.x = up->y16.data();
    second.y = hidden.data();
    for (int i = 0; i < 3 * kLayers && status == cudaSuccess; ++i) {
      status = i % 3 == 0   ? LaunchRmsNorm(hidden.data(), norm.data(), 1e-5f, rows, kHidden, normalised.data(), stream)
               : i % 3 == 1 ? LaunchGemv(first, stream)
                            : LaunchGemv(second, stream);
      if (wait && status == cudaSuccess) status = cudaStreamSynchronize(stream);
    }
    return status;
  };
  cudaStream_t capturing;
  cudaGraph_t captured;
  cudaGraphExec_t replay;
  Must(cudaStreamCreateWithFlags(&capturing, cudaStreamNonBlocking));
  Must(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeThreadLocal));
  Must(run(capturing, false));
  Must(cudaStreamEndCapture(capturing, &captured));
  Must(cudaGraphInstantiate(&replay, captured, 0));
  Must(cudaGraphDestroy(captured));
  Must(cudaStreamDestroy(capturing));
  const std::shared_ptr<CUgraphExec_st> graph(replay, [](cudaGraphExec_t held) { cudaGraphExecDestroy(held); });
  KernelCase result;
  result.name = "gemv and norm chain of " + std::to_string(3 * kLayers) + ", " + std::to_string(rows) + " rows";
  result.tolerance = 0;
  result.launch = [=](cudaStream_t stream) { return cudaGraphLaunch(graph.get(), stream); };
  result.error = [=] {
    const DeviceArray<float> chained(hidden.ToHost());
    Must(run(nullptr, true));
    return std::isfinite(chained.ToHost()[0]) ? Different(chained, hidden) : 1;
  };
  return result;
}

KernelCase Bench(const ProjectionForm& form, int32_t rows, int32_t n, int32_t k, std::mt19937_64& random) {
  const BenchWeights weights(n, k, random);
  const auto problem = std::make_shared<const ProjectionProblem>(form, rows, 16, k, random);
  const int64_t columns = form.swiglu ? n / 2 : n;
  const DeviceArray<float> y(std::vector<float>(rows * columns));
  const auto launches = std::make_shared<int64_t>(0);
  KernelCase result;
  result.name = "gemv " + std::to_string(rows) + " x " + std::to_string(k) + " by " + std::to_string(n) + form.name;
  result.bytes = 2.0 * n * k;
  result.flops = 2.0 * rows * n * k;
  result.launch = [=](cudaStream_t stream) {
    GemvArgs args = problem->Args();
    args.w = weights.Copy((*launches)++);
    args.n = n;
    args.y = y.data();
    args.y_stride = columns;
    return LaunchGemv(args, stream);
  };
  return result;
}

}  // namespace

std::vector<KernelCase> GemvCases(CaseSize size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<KernelCase> cases;
  if (size == CaseSize::kBench) {
    for (const int32_t rows : {1, 4, 8}) {
      if (rows > GemvRowsThatFit(4096)) continue;
      cases.push_back(Bench(kPlain, rows, 6144, 4096, random));
      cases.push_back(Bench(kAdd, rows, 4096, 4096, random));
      cases.push_back(Bench(kSwiGlu, rows, 28672, 4096, random));
      if (rows <= GemvRowsThatFit(14336)) cases.push_back(Bench(kAdd, rows, 4096, 14336, random));
      if (rows == 1) cases.push_back(Bench(kFp32, rows, 128256, 4096, random));
    }
    return cases;
  }
  for (const ProjectionForm& form : kForms) {
    for (const auto& [n, k] :
         {std::pair{48, 8}, {32, 64}, {144, 72}, {1040, 576}, {5040, 136}, {48, 4104}, {48, 9000}}) {
      const int32_t fit = GemvRowsThatFit(k);
      if (fit == 0) continue;
      const auto rows = static_cast<int32_t>(random() % static_cast<uint32_t>(fit) + 1);
      const int32_t ragged = form.swiglu ? 0 : static_cast<int32_t>(random() % 16);
      cases.push_back(Check(form, rows, n - ragged, k, random));
    }
    for (const int32_t rows : {1, 4}) {
      if (rows <= GemvRowsThatFit(14336)) cases.push_back(Check(form, rows, 32, 14336, random));
    }
  }
  for (int32_t rows = 1; rows <= kMaxGemvRows; ++rows) {
    if (rows > GemvRowsThatFit(320)) break;
    cases.push_back(Check(kPlain, rows, 200, 320, random));
    cases.push_back(Check(kSwiGlu, rows, 208, 320, random));
  }
  for (const int32_t rows : {1, 3, 8}) {
    if (rows <= GemvRowsThatFit(4096)) cases.push_back(Apart(rows, 72, 4096, random));
    if (rows <= GemvRowsThatFit(1536)) cases.push_back(Chain(rows, random));
  }
  return cases;
}

}  // namespace baton::cuda
