// Measures kernels and forward passes of the CUDA backend as shares of the device's best rates.
//
// The best rates are those of a large copy and of a large cuBLASLt product in the same run.
#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_matmul.h"
#include "backend/cuda/cuda_slab.h"
#include "backend/simulated/shapes.h"
#include "base/check.h"
#include "bench/forward_cost.h"
#include "bench/report.h"
#include "test/kernels/device_array.h"
#include "test/kernels/kernel_case.h"
#include "test/kernels/random_values.h"
#include "test/model/random_weights.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;
using cuda::DeviceArray;
using cuda::KernelCase;
using cuda::Must;

struct Options {
  int device = 0;
  int64_t layers = 32;
  bool kernels_only = false;
  std::string json;
};

// The best rates of the device.
struct Ceilings {
  double bytes_per_second = 0;  // read and written
  double flops_per_second = 0;  // bf16 in, fp32 accumulation
  double SecondsFor(double flops, double bytes) const {
    return std::max(flops / flops_per_second, bytes / bytes_per_second);
  }
};

// Returns the median seconds of `enqueue`. Each call runs alone on the device, because consecutive
// large products heat the device and slow each other down.
double SecondsOf(const std::function<cudaError_t(cudaStream_t)>& enqueue, cudaStream_t stream) {
  constexpr int kRounds = 15;
  for (int i = 0; i < 3; ++i) Must(enqueue(stream));
  cudaEvent_t begin, end;
  Must(cudaEventCreate(&begin));
  Must(cudaEventCreate(&end));
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) {
    Must(cudaEventRecord(begin, stream));
    Must(enqueue(stream));
    Must(cudaEventRecord(end, stream));
    Must(cudaEventSynchronize(end));
    float milliseconds = 0;
    Must(cudaEventElapsedTime(&milliseconds, begin, end));
    seconds.push_back(milliseconds / 1e3);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return Median(seconds);
}

// Returns the median seconds of a short launch. Several launches run as one graph, so that gaps
// between launches are not measured.
double SecondsOfShort(const std::function<cudaError_t(cudaStream_t)>& launch, cudaStream_t stream) {
  constexpr int kLaunches = 8;
  Must(launch(stream));
  Must(cudaStreamSynchronize(stream));
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  Must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kLaunches; ++i) Must(launch(stream));
  Must(cudaStreamEndCapture(stream, &graph));
  Must(cudaGraphInstantiate(&replay, graph, 0));
  const double seconds = SecondsOf([&](cudaStream_t s) { return cudaGraphLaunch(replay, s); }, stream);
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  return seconds / kLaunches;
}

Ceilings MeasureCeilings(cudaStream_t stream) {
  Ceilings ceilings;
  {
    constexpr size_t kBytes = size_t{2} << 30;
    const DeviceArray<std::byte> from(kBytes), to(kBytes);
    const double seconds = SecondsOf(
        [&](cudaStream_t s) { return cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, s); },
        stream);
    ceilings.bytes_per_second = 2.0 * kBytes / seconds;
  }
  constexpr int64_t kSize = 8192;
  std::mt19937_64 random(1);
  const DeviceArray<cuda::Bf16> x(cuda::RandomBf16(kSize * kSize, random)), w(cuda::RandomBf16(kSize * kSize, random)),
      y(kSize * kSize);
  const auto matmul = CudaMatmul::Create(/*same_bits=*/false).value();
  const double seconds = SecondsOf(
      [&](cudaStream_t s) {
        const absl::Status ran =
            matmul->Run({.x = x.data(), .w = w.data(), .y = y.data(), .rows = kSize, .n = kSize, .k = kSize}, s);
        BATON_CHECK(ran.ok(), ran.ToString());
        return cudaSuccess;
      },
      stream);
  ceilings.flops_per_second = 2.0 * kSize * kSize * kSize / seconds;
  return ceilings;
}

nlohmann::json ReportKernel(const KernelCase& bench, const Ceilings& ceilings, cudaStream_t stream) {
  constexpr double kLong = 200e-6;
  double seconds = SecondsOf(bench.launch, stream);
  if (seconds < kLong) seconds = SecondsOfShort(bench.launch, stream);
  const double share = ceilings.SecondsFor(bench.flops, bench.bytes) / seconds;
  std::printf("%-58s %10.1f us %8.0f GB/s %7.1f TFLOP/s %5.0f %%\n", bench.name.c_str(), seconds * 1e6,
              bench.bytes / seconds / 1e9, bench.flops / seconds / 1e12, share * 100);
  std::fflush(stdout);
  return {{"kernel", bench.name},
          {"seconds_median", seconds},
          {"bytes", bench.bytes},
          {"flops", bench.flops},
          {"share_of_ceiling", share}};
}

nlohmann::json BenchKernels(const Ceilings& ceilings, cudaStream_t stream) {
  nlohmann::json report = nlohmann::json::array();
  for (const auto make :
       {cuda::RowCases, cuda::GemvCases, cuda::ProductCases, cuda::PrefillAttentionCases, cuda::DecodeAttentionCases,
        cuda::BlockCopyCases, cuda::SamplingCases, cuda::ChosenTokensCases}) {
    for (const KernelCase& bench : make(cuda::CaseSize::kBench, 1)) {
      report.push_back(ReportKernel(bench, ceilings, stream));
    }
  }
  return report;
}

// Makes random weights that all layers share on the host, because weights take long to draw. Each
// layer has its own copy on the device.
std::unique_ptr<Weights> SameLayers(ModelConfig shape, int64_t layers) {
  shape.layers = 1;
  auto weights = std::make_unique<RandomWeights>(shape, 1);
  weights->layers.resize(static_cast<size_t>(layers), weights->layers[0]);
  weights->config.layers = layers;
  return weights;
}

class ForwardBench {
 public:
  ForwardBench(const Options& options, bool same_bits, const Weights& weights)
      : config_(weights.config), same_bits_(same_bits) {
    auto memory = CudaSlab::Allocate(options.device, kBlocks * CudaKvLayout(config_).BlockBytes());
    BATON_CHECK(memory.ok(), memory.status().ToString());
    memory_ = *std::move(memory);
    auto made = MakeCudaBackend(weights, {.device = options.device,
                                          .slab = memory_->slab(),
                                          .step = {.tokens = 8192, .logits = 256},
                                          .same_bits = same_bits});
    BATON_CHECK(made.ok(), made.status().ToString());
    backend_ = *std::move(made);
    // Fills KV with small numbers, because a GPU computes faster with zeros than with real data.
    Must(cudaMemset(backend_->kv_slab().data(), 0x3c, backend_->kv_slab().size()));
  }

  // Measures one step. `spec` has the sampling parameters of all rows, which the device samples.
  // The default is greedy.
  nlohmann::json Run(const ForwardStep& step, const Ceilings& ceilings,
                     const SampleSpec& spec = {.draw = {.temperature = 0}}) {
    std::mt19937 random(7);
    std::vector<std::vector<TokenId>> tokens(static_cast<size_t>(step.streams));
    std::vector<std::vector<BlockId>> tables(tokens.size());
    Batch batch;
    uint32_t next = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i].resize(static_cast<size_t>(step.tokens));
      for (TokenId& token : tokens[i]) token = static_cast<TokenId>(random() % config_.vocab);
      for (int64_t b = 0; b < BlocksFor(step.history + (step.logits ? 2 * kRounds : 1) * step.tokens); ++b)
        tables[i].push_back(BlockId(next++));
      batch.slices.push_back({tokens[i], static_cast<int32_t>(step.history), tables[i], step.logits, &spec});
    }
    BATON_CHECK(next <= kBlocks, "the slab is too small for this bench");
    const auto [seconds, host_seconds, first_seconds] = Seconds(batch);
    const std::optional<double> ahead_seconds = step.logits ? AheadSeconds(batch) : std::nullopt;
    const double flops = FlopsOf(step, config_), bytes = BytesOf(step, config_, backend_->kv_layout());
    const double share = ceilings.SecondsFor(flops, bytes) / seconds;
    std::printf("forward%s: %4ld streams x %5ld tokens on %6ld %10.3f ms %8.0f tok/s %6.0f GB/s %6.1f TFLOP/s %5.0f %%",
                same_bits_ ? " (same bits)" : "", static_cast<long>(step.streams), static_cast<long>(step.tokens),
                static_cast<long>(step.history), seconds * 1e3,
                static_cast<double>(step.streams * step.tokens) / seconds, bytes / seconds / 1e9,
                flops / seconds / 1e12, share * 100);
    if (step.logits) {
      std::printf(", host %.0f us, enqueued ahead %.3f ms; the first %.1f ms, then %.1f ms%s", host_seconds * 1e6,
                  ahead_seconds.value_or(0) * 1e3, first_seconds[0] * 1e3, first_seconds[1] * 1e3,
                  spec.seen.empty() ? "" : ", penalties");
    }
    std::printf("\n");
    std::fflush(stdout);
    nlohmann::json result = {{"same_bits", same_bits_}, {"streams", step.streams},   {"tokens", step.tokens},
                             {"history", step.history}, {"seconds_median", seconds}, {"flops", flops},
                             {"bytes", bytes},          {"share_of_ceiling", share}};
    if (step.logits) {
      result["host_seconds_median"] = host_seconds;
      if (ahead_seconds) result["ahead_seconds_median"] = *ahead_seconds;
      result["first_seconds"] = first_seconds;
      result["seen_tokens"] = spec.seen.size();
    }
    return result;
  }

 private:
  static constexpr int64_t kBlocks = 20000;
  static constexpr int kRounds = 13;

  struct Medians {
    // Time of the whole pass by the host's clock. The pass ends with the logits on the host.
    double seconds;
    // Decode step: time until all work is enqueued. It is the host's own work without waits.
    double host_seconds;
    // Times of the first pass of this size, and of the pass that is captured as a graph.
    std::array<double, 2> first_seconds;
  };
  // Moves all sequences on by one token, to the next decode step.
  static void GoOn(Batch& batch) {
    for (SequenceSlice& slice : batch.slices) ++slice.start;
  }
  Medians Seconds(Batch& batch) {
    std::vector<double> seconds, host_seconds;
    std::array<double, 2> first_seconds{};
    for (int round = 0; round < kRounds; ++round) {
      const auto begin = Clock::now();
      Clock::time_point enqueued;
      const auto logits = backend_->Forward(batch, [](int64_t) { return true; },
                                            {[&] { enqueued = Clock::now(); }, [] { return nullptr; }});
      BATON_CHECK(logits.ok(), logits.status().ToString());
      const double took = std::chrono::duration<double>(Clock::now() - begin).count();
      if (batch.slices[0].wants_logits) GoOn(batch);
      if (round < 2) first_seconds[static_cast<size_t>(round)] = took;
      // From the second step on, a decode step runs as a graph.
      if (round < 3) continue;
      seconds.push_back(took);
      host_seconds.push_back(std::chrono::duration<double>(enqueued - begin).count());
    }
    return {Median(seconds), Median(host_seconds), first_seconds};
  }

  // Returns the median time from the end of a decode step to the end of the next one. The next step
  // is enqueued before the first one ends, so the device never waits. Returns nullopt if a step
  // could not be enqueued early; the log has the reason.
  std::optional<double> AheadSeconds(Batch batch) {
    std::vector<double> seconds;
    Batch next = batch;
    for (size_t i = 0; i < next.slices.size(); ++i) next.slices[i].follows = static_cast<int32_t>(i);
    auto before = Clock::now();
    for (int round = 0; round < kRounds; ++round) {
      GoOn(next);
      const bool last = round + 1 == kRounds;
      const auto logits = backend_->Forward(batch, [](int64_t) { return true; },
                                            {[] {}, [&]() -> const Batch* { return last ? nullptr : &next; }});
      BATON_CHECK(logits.ok(), logits.status().ToString());
      if (logits->next_started == last) return std::nullopt;
      batch.started = true;
      const auto ended = Clock::now();
      if (round > 2 && !last) seconds.push_back(std::chrono::duration<double>(ended - before).count());
      before = ended;
    }
    return Median(seconds);
  }

  const ModelConfig config_;
  const bool same_bits_;
  std::shared_ptr<CudaSlab> memory_;
  std::unique_ptr<Backend> backend_;
};

nlohmann::json BenchForward(const Options& options, const Ceilings& ceilings) {
  const std::unique_ptr<Weights> weights = SameLayers(ModelNamed("llama-3.1-8b").value(), options.layers);
  nlohmann::json report = nlohmann::json::array();
  for (const bool same_bits : {false, true}) {
    ForwardBench bench(options, same_bits, *weights);
    for (const ForwardStep& step :
         {ForwardStep{.tokens = 8192}, ForwardStep{.tokens = 4096, .history = 4096},
          ForwardStep{.tokens = 2048, .history = 6144}, ForwardStep{.tokens = 1024, .history = 7168},
          ForwardStep{.tokens = 512, .history = 7680}, ForwardStep{.tokens = 128, .history = 4096},
          ForwardStep{.tokens = 64, .history = 4096}, ForwardStep{.tokens = 16, .history = 4096},
          ForwardStep{.history = 32000, .logits = true}, ForwardStep{.history = 1024, .logits = true},
          ForwardStep{.streams = 16, .history = 1024, .logits = true},
          ForwardStep{.streams = 64, .history = 1024, .logits = true},
          ForwardStep{.streams = 256, .history = 1024, .logits = true}}) {
      report.push_back(bench.Run(step, ceilings));
    }
    // The default sampling parameters of Qwen2.5. Each stream has generated 1,000 different tokens.
    std::vector<SeenToken> seen;
    for (TokenId id = 0; id < 1000; ++id) seen.push_back({id * 7, 1});
    const SampleSpec penalised{.draw = {.temperature = 0.7F, .top_k = 20, .top_p = 0.8F, .repetition_penalty = 1.05F},
                               .uniform = 0.5,
                               .seen = seen};
    report.push_back(bench.Run({.streams = 256, .history = 1024, .logits = true}, ceilings, penalised));
  }
  return report;
}

// Measures copies of KV blocks from the device to the host and back, as eviction makes them.
nlohmann::json BenchHostCopies(int device) {
  // Blocks of Llama-3.1-8B.
  constexpr int64_t kBlock = 2 << 20, kBlocks = 256;
  const auto memory = CudaSlab::Allocate(device, kBlock * kBlocks);
  BATON_CHECK(memory.ok(), memory.status().ToString());
  const Slab slab = (*memory)->slab();
  Must(cudaMemset(slab.data(), 0x3c, slab.size()));
  const auto locked = slab.AllocateHost(slab.size());
  BATON_CHECK(locked.ok(), locked.status().ToString());
  const HostMemory ordinary(new std::byte[slab.size()]);
  nlohmann::json report = nlohmann::json::array();
  for (const bool page_locked : {false, true}) {
    for (const bool out : {true, false}) {
      std::byte* const host = page_locked ? locked->get() : ordinary.get();
      std::vector<MemoryCopy> copies;
      for (int64_t at = 0; at < kBlock * kBlocks; at += kBlock) {
        copies.push_back(out ? MemoryCopy{host + at, slab.data() + at, kBlock}
                             : MemoryCopy{slab.data() + at, host + at, kBlock});
      }
      std::vector<double> seconds;
      for (int round = 0; round < 7; ++round) {
        const auto begin = Clock::now();
        const absl::Status copied = slab.Copy(copies);
        BATON_CHECK(copied.ok(), copied.ToString());
        if (round > 1) seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
      }
      const double rate = kBlock * kBlocks / Median(seconds);
      std::printf("%ld blocks of 2 MiB %s %s memory of the host %8.1f GB/s\n", static_cast<long>(kBlocks),
                  out ? "to" : "from", page_locked ? "page-locked" : "ordinary", rate / 1e9);
      report.push_back({{"to_host", out}, {"page_locked", page_locked}, {"bytes_per_second", rate}});
    }
  }
  return report;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Measures the CUDA backend's kernels and forward passes (random weights of Llama-3.1-8B's shape) as shares of "
      "the device's copy and matrix product rates.");
  app.add_option("--device", options.device, "CUDA device");
  app.add_option("--layers", options.layers, "layers of the model")->check(CLI::Range(1, 128));
  app.add_flag("--kernels-only", options.kernels_only, "leave the forward passes out");
  app.add_option("--json", options.json, "write the results to this file");
  CLI11_PARSE(app, argc, argv);

  const auto device = DescribeCudaDevice(options.device);
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", device.status().ToString().c_str());
    return 1;
  }
  Must(cudaSetDevice(options.device));
  cudaStream_t stream;
  Must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const Ceilings ceilings = MeasureCeilings(stream);
  std::printf("%s: copy %.0f GB/s (read and written), bf16 product %.0f TFLOP/s\n", device->c_str(),
              ceilings.bytes_per_second / 1e9, ceilings.flops_per_second / 1e12);
  nlohmann::json report = {{"device", *device},
                           {"copy_bytes_per_second", ceilings.bytes_per_second},
                           {"product_flops_per_second", ceilings.flops_per_second},
                           {"kernels", BenchKernels(ceilings, stream)}};
  report["host_copies"] = BenchHostCopies(options.device);
  // Writes a first report, so that a later failure does not lose it.
  if (const int written = WriteReport(report, options.json); written != 0 || options.kernels_only) return written;
  report["forward"] = BenchForward(options, ceilings);
  return WriteReport(report, options.json);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
