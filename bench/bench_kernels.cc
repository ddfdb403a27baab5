// Measures projections of the CPU backend as shares of the machine's best rates.
//
// The best rates are arithmetic rate and streaming read bandwidth, measured in the same rounds. The
// machine may be noisy. Every round therefore measures everything once, and the report has medians
// and bests.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "backend/cpu/cpu_features.h"
#include "backend/cpu/linear.h"
#include "bench/report.h"
#include "bench/roofline.h"

namespace baton {
namespace {

struct Options {
  // Name of a kernel table. Empty: the fastest.
  std::string kernels;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  int rounds = 15;
  std::string model = "smollm2";
  bool f32 = false;
  std::string json;
};

// One projection of a model. It runs for `layers` layers with different weights.
struct Projection {
  std::string name;
  int64_t n, k;
  int layers;
  bool gate_up = false;
};

std::vector<Projection> ProjectionsOf(const std::string& model) {
  // Four of the 32 layers.
  if (model == "llama8b") {
    return {{"qkv", 6144, 4096, 4}, {"o", 4096, 4096, 4}, {"gate_up", 28672, 4096, 4, true}, {"down", 4096, 14336, 4}};
  }
  return {{"qkv", 960, 576, 30},
          {"o", 576, 576, 30},
          {"gate_up", 3072, 576, 30, true},
          {"down", 576, 1536, 30},
          {"lm_head", 49152, 576, 1}};
}

// Returns small values from a linear congruence. Their values do not matter, but no product may be
// denormal.
std::vector<float> Values(int64_t count) {
  std::vector<float> values(count);
  uint32_t state = 12345;
  for (float& v : values) {
    state = state * 1664525 + 1013904223;
    v = (static_cast<float>(state >> 8) / (1 << 24) - 0.5F) * 0.1F + 1e-4F;
  }
  return values;
}

std::vector<PackedWeight> Pack(WeightMemory& memory, const KernelTable& kernels, const Projection& projection,
                               bool f32) {
  const std::vector<float> values = Values(projection.n * projection.k);
  std::vector<Bf16> bits(f32 ? 0 : values.size());
  if (!f32) kernels.round_to_bf16(values.data(), static_cast<int64_t>(values.size()), bits.data());
  const auto* data =
      f32 ? reinterpret_cast<const std::byte*>(values.data()) : reinterpret_cast<const std::byte*>(bits.data());
  const Tensor tensor = {data, f32 ? DType::kF32 : DType::kBF16, projection.n, projection.k};
  std::vector<PackedWeight> weights;
  for (int layer = 0; layer < projection.layers; ++layer) {
    if (projection.gate_up) {
      Tensor half = tensor;
      half.rows /= 2;
      weights.push_back(PackedWeight::GateUp(memory, kernels, half, half));
    } else {
      weights.emplace_back(memory, kernels, std::array{tensor});
    }
  }
  return weights;
}

// A sequence of projections that is measured as a whole.
struct Case {
  std::string name;
  int64_t rows = 0;
  std::vector<const PackedWeight*> weights;
  std::vector<bool> gate_up;
  // One value for each round.
  std::vector<double> seconds;
};

double Flops(const Case& c) {
  double flops = 0;
  for (const PackedWeight* w : c.weights) flops += 2.0 * static_cast<double>(w->n() * w->k() * c.rows);
  return flops;
}

double Bytes(const Case& c) {
  double bytes = 0;
  for (const PackedWeight* w : c.weights) bytes += static_cast<double>(w->bytes());
  return bytes;
}

class Bench {
 public:
  Bench(const Options& options, const KernelTable& kernels)
      : options_(options), kernels_(kernels), pool_(options.threads), roofline_(pool_), linear_(kernels, pool_) {
    AddCases();
  }

  void Run() {
    for (int round = 0; round < options_.rounds; ++round) {
      std::fprintf(stderr, "\rround %d of %d", round + 1, options_.rounds);
      std::fflush(stderr);
      for (Case& c : cases_) {
        flops_.push_back(roofline_.FlopsPerSecond(ArithmeticOf(kernels_.name, !options_.f32)));
        c.seconds.push_back(RunCase(c));
      }
      for (int i = 0; i < 3; ++i) bandwidths_.push_back(roofline_.ReadBytesPerSecond());
    }
    std::fprintf(stderr, "\n");
  }

  nlohmann::json Report() const;

 private:
  void AddCases();
  void AddCase(const std::string& name, int64_t rows, const std::vector<const Projection*>& projections);
  double RunCase(const Case& c);

  const Options options_;
  const KernelTable& kernels_;
  ThreadPool pool_;
  Roofline roofline_;
  Linear linear_;
  std::vector<Projection> projections_;
  WeightMemory memory_;
  std::map<std::string, std::vector<PackedWeight>> weights_;
  std::vector<float> x_, y_;
  std::vector<Bf16> rounded_x_;
  std::vector<Case> cases_;
  std::vector<double> flops_, bandwidths_;
};

void Bench::AddCase(const std::string& name, int64_t rows, const std::vector<const Projection*>& projections) {
  Case c{.name = name, .rows = rows, .weights = {}, .gate_up = {}, .seconds = {}};
  int layers = 0;
  for (const Projection* p : projections) layers = std::max(layers, p->layers);
  for (int layer = 0; layer < layers; ++layer) {
    for (const Projection* p : projections) {
      if (layer < p->layers) c.weights.push_back(&weights_[p->name][layer]), c.gate_up.push_back(p->gate_up);
    }
  }
  cases_.push_back(std::move(c));
}

void Bench::AddCases() {
  constexpr int64_t kMostRows = 512;
  projections_ = ProjectionsOf(options_.model);
  std::vector<const Projection*> all, layers_only;
  int64_t most_n = 0;
  int64_t most_k = 0;
  for (const Projection& p : projections_) {
    std::fprintf(stderr, "packing %s\n", p.name.c_str());
    weights_[p.name] = Pack(memory_, kernels_, p, options_.f32);
    all.push_back(&p);
    if (p.name != "lm_head") layers_only.push_back(&p);
    most_n = std::max(most_n, p.n);
    most_k = std::max(most_k, p.k);
  }
  for (int64_t rows : {1, 2, 4, 8, 12, 16, 24, 32, 64}) AddCase("decode step", rows, all);
  for (int64_t rows : {64, 128, 512}) AddCase("prefill", rows, layers_only);
  for (const Projection& p : projections_) {
    for (int64_t rows : {1, 32, 512}) {
      // Prefill has no LM head.
      if (p.name == "lm_head" && rows > 32) continue;
      AddCase(p.name, rows, {&p});
    }
  }
  x_ = Values(kMostRows * most_k);
  rounded_x_.resize(x_.size());
  kernels_.round_to_bf16(x_.data(), static_cast<int64_t>(x_.size()), rounded_x_.data());
  y_.resize(kMostRows * std::min<int64_t>(most_n, 28672) + 64 * most_n);
}

double Bench::RunCase(const Case& c) {
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < c.weights.size(); ++i) {
    const PackedWeight& w = *c.weights[i];
    LinearOutput output = {y_.data(), w.n()};
    if (c.gate_up[i]) {
      output = {y_.data(), w.n() / 2, LinearThen::kSwiGlu, w.format() == WeightFormat::kBf16Pairs};
    }
    const bool pairs = w.format() == WeightFormat::kBf16Pairs;
    const void* x = pairs ? static_cast<const void*>(rounded_x_.data()) : x_.data();
    linear_.Run(w, {x, w.k(), c.rows}, output);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Returns the processor's name from /proc/cpuinfo.
std::string Machine() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

nlohmann::json Bench::Report() const {
  const double flops = Median(flops_);
  const double bandwidth = Median(bandwidths_);
  const double best_flops = *std::max_element(flops_.begin(), flops_.end());
  const double best_bandwidth = *std::max_element(bandwidths_.begin(), bandwidths_.end());
  std::printf("%s, %s weights, %d threads: %.0f GFLOP/s (best %.0f), %.1f GB/s (best %.1f)\n", kernels_.name,
              options_.f32 ? "f32" : "bf16", pool_.threads(), flops / 1e9, best_flops / 1e9, bandwidth / 1e9,
              best_bandwidth / 1e9);
  std::printf("%-12s %5s %11s %9s %8s  %s\n", "case", "rows", "median us", "GFLOP/s", "GB/s",
              "share of roofline, best");
  nlohmann::json report = {{"machine", Machine()},
                           {"date", absl::FormatTime("%Y-%m-%d", absl::Now(), absl::UTCTimeZone())},
                           {"kernels", kernels_.name},
                           {"model", options_.model},
                           {"weights", options_.f32 ? "f32" : "bf16"},
                           {"threads", pool_.threads()},
                           {"rounds", options_.rounds},
                           {"roofline",
                            {{"flops_per_s", flops},
                             {"best_flops_per_s", best_flops},
                             {"read_bytes_per_s", bandwidth},
                             {"best_read_bytes_per_s", best_bandwidth}}}};
  for (const Case& c : cases_) {
    const double seconds = Median(c.seconds);
    const double best = *std::min_element(c.seconds.begin(), c.seconds.end());
    const double share = std::max(Flops(c) / flops, Bytes(c) / bandwidth) / seconds;
    const double best_share = std::max(Flops(c) / best_flops, Bytes(c) / best_bandwidth) / best;
    const char* bound = Flops(c) / flops > Bytes(c) / bandwidth ? "arithmetic" : "bandwidth";
    std::printf("%-12s %5ld %11.1f %9.0f %8.1f  %5.1f %%, %5.1f %% of %s\n", c.name.c_str(), static_cast<long>(c.rows),
                seconds * 1e6, Flops(c) / seconds / 1e9, Bytes(c) / seconds / 1e9, share * 100, best_share * 100,
                bound);
    report["cases"].push_back({{"name", c.name},
                               {"rows", c.rows},
                               {"seconds_median", seconds},
                               {"seconds_best", best},
                               {"flops", Flops(c)},
                               {"bytes", Bytes(c)},
                               {"bound", bound},
                               {"share_of_roofline", share},
                               {"share_of_roofline_best", best_share}});
  }
  return report;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures the CPU projections as shares of this machine's roofline.");
  app.add_option("--kernels", options.kernels, "portable, avx2, avx512 or avx512bf16; default: the fastest");
  app.add_option("--threads", options.threads, "threads, default: all cores")->check(CLI::Range(1, 1024));
  app.add_option("--rounds", options.rounds, "measurements of each case")->check(CLI::Range(1, 10000));
  app.add_option("--model", options.model, "model whose shapes are measured")
      ->check(CLI::IsMember({"smollm2", "llama8b"}));
  app.add_flag("--f32", options.f32, "f32 weights instead of bf16");
  app.add_option("--json", options.json, "write the results to this file");
  CLI11_PARSE(app, argc, argv);
  const KernelTable* kernels = &SelectKernels();
  if (!options.kernels.empty()) {
    const auto named = KernelsNamed(options.kernels);
    if (!named.ok()) {
      std::fprintf(stderr, "%s\n", std::string(named.status().message()).c_str());
      return 2;
    }
    kernels = *named;
  }
  Bench bench(options, *kernels);
  bench.Run();
  const nlohmann::json report = bench.Report();
  return WriteReport(report, options.json);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
