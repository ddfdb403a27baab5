// Measures whole forward passes of the CPU backend as shares of the machine's best rates, and
// compares a prompt in chunks with one pass.
//
// The best rates are arithmetic rate and streaming read bandwidth, measured in the same rounds. The
// machine may be noisy, so the report has medians and bests.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "backend/cpu/buffer.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_features.h"
#include "backend/cpu/cpu_ops.h"
#include "base/check.h"
#include "bench/forward_cost.h"
#include "bench/report.h"
#include "bench/roofline.h"
#include "bench/timed_ops.h"
#include "model/forward.h"
#include "model/weights.h"
#include "test/model/random_weights.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Options {
  // Directory of a model. Empty: random weights with the shape of SmolLM2-135M.
  std::string model;
  // Name of a kernel table. Empty: the fastest.
  std::string kernels;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  int rounds = 9;
  std::string json;
};

ModelConfig SmolLm2Shape() {
  ModelConfig shape;
  shape.layers = 30;
  shape.hidden = 576;
  shape.ffn = 1536;
  shape.heads = 9;
  shape.kv_heads = 3;
  shape.head_dim = 64;
  shape.vocab = 49152;
  shape.context = 8192;
  shape.rope_theta = 100000;
  shape.tied_embeddings = true;
  return shape;
}

// One step: `streams` sequences with `history` tokens each compute `tokens` more.
struct Case {
  std::string name;
  int64_t streams = 1;
  int64_t tokens = 1;
  int64_t history = 0;
  bool logits = false;
  // One value for each round.
  std::vector<double> seconds = {};
  // Sums over all rounds, by kind of operation.
  std::map<std::string, double> op_seconds = {};

  ForwardStep Step() const { return {.streams = streams, .tokens = tokens, .history = history, .logits = logits}; }
};

// A prompt that is computed in chunks. Each chunk is a step that attends to earlier chunks.
struct ChunkedPrompt {
  static constexpr int64_t kTokens = 1024;
  int64_t chunk = kTokens;
  // One value for each round.
  std::vector<double> seconds = {}, first_seconds = {}, last_seconds = {};
};

class Bench {
 public:
  Bench(const Options& options, const ModelConfig& config, const KernelTable& kernels)
      : options_(options),
        config_(config),
        kernels_(kernels),
        layout_(CpuKvLayout(config)),
        arithmetic_(ArithmeticOf(kernels.name, config.dtype == DType::kBF16)),
        pool_(options.threads),
        roofline_(pool_),
        slab_bytes_(static_cast<size_t>(kBlocks * layout_.BlockBytes())),
        ops_(config, kernels, pool_, layout_, {slab_.Reserve(slab_bytes_), slab_bytes_}),
        timed_(ops_) {}

  absl::Status Start(const Weights& weights) {
    const auto start = Clock::now();
    auto packed = PackModel(weights, true, ops_);
    if (!packed.ok()) return packed.status();
    model_ = *std::move(packed);
    pack_seconds_ = SecondsSince(start);
    // Fills KV with small numbers. Untouched memory would be one page of zeros that is always
    // cached.
    std::memset(slab_.data(), 0x3c, slab_bytes_);
    return absl::OkStatus();
  }

  void Run() {
    for (int round = 0; round < options_.rounds; ++round) {
      std::fprintf(stderr, "\rround %d of %d", round + 1, options_.rounds);
      for (Case& step : cases_) {
        flops_.push_back(roofline_.FlopsPerSecond(arithmetic_));
        bandwidths_.push_back(roofline_.ReadBytesPerSecond());
        // Short steps run several times, so that the figure is that of a running worker and not of
        // its first step.
        for (int i = 0; i < (step.tokens > 1 ? 1 : 8); ++i) step.seconds.push_back(RunStep(step));
      }
      for (ChunkedPrompt& prompt : chunked_) RunChunks(prompt);
    }
    std::fprintf(stderr, "\n");
  }

  nlohmann::json Report() const;
  nlohmann::json ReportChunks() const;

 private:
  static constexpr int64_t kBlocks = 1100;  // 32 streams of 512 tokens

  double RunStep(Case& step);
  void RunChunks(ChunkedPrompt& prompt);

  const Options options_;
  const ModelConfig config_;
  const KernelTable& kernels_;
  const KvLayout layout_;
  const Arithmetic arithmetic_;
  ThreadPool pool_;
  Roofline roofline_;
  const size_t slab_bytes_;
  Buffer<std::byte> slab_;
  CpuOps ops_;
  TimedOps timed_;
  PackedModel model_;
  double pack_seconds_ = 0;
  std::vector<double> flops_, bandwidths_;
  std::vector<Case> cases_ = {{.name = "prefill", .tokens = 512},
                              {.name = "prefill", .tokens = 2048},
                              {.name = "prefill", .tokens = 128, .history = 2048},
                              {.name = "decode", .history = 64, .logits = true},
                              {.name = "decode", .history = 2048, .logits = true},
                              {.name = "decode", .streams = 8, .history = 256, .logits = true},
                              {.name = "decode", .streams = 32, .history = 256, .logits = true}};
  std::vector<ChunkedPrompt> chunked_ = {{}, {.chunk = 512}, {.chunk = 256}, {.chunk = 128}, {.chunk = 64}};
};

double Bench::RunStep(Case& step) {
  const int64_t end = step.history + step.tokens;
  const std::vector<TokenId> tokens(step.tokens, 17);
  std::vector<std::vector<BlockId>> tables(step.streams);
  uint32_t next = 0;
  for (std::vector<BlockId>& table : tables) {
    // Neighbouring blocks of a sequence are not neighbours in the slab.
    for (int64_t i = 0; i < BlocksFor(end); ++i) table.push_back(BlockId(next++ * 7 % kBlocks));
  }
  Batch batch;
  for (const std::vector<BlockId>& table : tables) {
    batch.slices.push_back({tokens, static_cast<int32_t>(step.history), table, step.logits});
  }
  const auto start = Clock::now();
  const auto logits = Forward(model_, batch, timed_, [](int64_t) { return true; });
  BATON_CHECK(logits.ok(), "a CPU step cannot fail");
  const double seconds = SecondsSince(start);
  for (const auto& [kind, of_kind] : timed_.TakeSeconds()) step.op_seconds[kind] += of_kind;
  return seconds;
}

void Bench::RunChunks(ChunkedPrompt& prompt) {
  double all = 0;
  for (int64_t begin = 0; begin < ChunkedPrompt::kTokens; begin += prompt.chunk) {
    Case step{.name = "chunk", .tokens = prompt.chunk, .history = begin};
    const double seconds = RunStep(step);
    all += seconds;
    if (begin == 0) prompt.first_seconds.push_back(seconds);
    if (begin + prompt.chunk == ChunkedPrompt::kTokens) prompt.last_seconds.push_back(seconds);
  }
  prompt.seconds.push_back(all);
}

// Prints the share of each kind of operation in the time of all operations.
std::map<std::string, double> OpShares(const Case& step) {
  double all = 0;
  for (const auto& [kind, seconds] : step.op_seconds) all += seconds;
  std::map<std::string, double> shares;
  for (const auto& [kind, seconds] : step.op_seconds) shares[kind] = seconds / all;
  return shares;
}

std::string Percentages(const std::map<std::string, double>& shares) {
  std::string text;
  for (const auto& [kind, share] : shares) absl::StrAppendFormat(&text, "  %s %.1f %%", kind, share * 100);
  return text;
}

nlohmann::json Bench::Report() const {
  const double flops = Median(flops_), bandwidth = Median(bandwidths_);
  const double best_flops = *std::max_element(flops_.begin(), flops_.end());
  const double best_bandwidth = *std::max_element(bandwidths_.begin(), bandwidths_.end());
  std::printf("%s kernels, %d threads: packed in %.2f s; %.0f GFLOP/s (best %.0f), %.1f GB/s (best %.1f)\n",
              kernels_.name, options_.threads, pack_seconds_, flops / 1e9, best_flops / 1e9, bandwidth / 1e9,
              best_bandwidth / 1e9);
  std::printf("%-8s %7s %6s %7s %9s %9s  %s\n", "case", "streams", "tokens", "history", "median ms", "tokens/s",
              "share of roofline, best");
  nlohmann::json report = {{"kernels", kernels_.name},
                           {"threads", options_.threads},
                           {"rounds", options_.rounds},
                           {"pack_seconds", pack_seconds_},
                           {"roofline",
                            {{"flops_per_s", flops},
                             {"best_flops_per_s", best_flops},
                             {"read_bytes_per_s", bandwidth},
                             {"best_read_bytes_per_s", best_bandwidth}}}};
  for (const Case& step : cases_) {
    const double work = FlopsOf(step.Step(), config_), bytes = BytesOf(step.Step(), config_, layout_);
    const double seconds = Median(step.seconds);
    const double best = *std::min_element(step.seconds.begin(), step.seconds.end());
    const double share = std::max(work / flops, bytes / bandwidth) / seconds;
    const double best_share = std::max(work / best_flops, bytes / best_bandwidth) / best;
    const char* bound = work / flops > bytes / bandwidth ? "arithmetic" : "bandwidth";
    std::printf("%-8s %7ld %6ld %7ld %9.2f %9.0f  %5.1f %%, %5.1f %% of %s\n", step.name.c_str(),
                static_cast<long>(step.streams), static_cast<long>(step.tokens), static_cast<long>(step.history),
                seconds * 1e3, static_cast<double>(step.streams * step.tokens) / seconds, share * 100, best_share * 100,
                bound);
    std::printf("       %s\n", Percentages(OpShares(step)).c_str());
    report["cases"].push_back({{"name", step.name},
                               {"streams", step.streams},
                               {"tokens", step.tokens},
                               {"history", step.history},
                               {"seconds_median", seconds},
                               {"seconds_best", best},
                               {"flops", work},
                               {"bytes", bytes},
                               {"bound", bound},
                               {"share_of_roofline", share},
                               {"share_of_roofline_best", best_share},
                               {"op_shares", OpShares(step)}});
  }
  report["chunking"] = ReportChunks();
  return report;
}

// Ratios are medians of the ratios within each round, because the runs of a round are consecutive.
nlohmann::json Bench::ReportChunks() const {
  const std::vector<double>& whole = chunked_.front().seconds;
  std::printf("%ld tokens in one pass: %.1f ms\n", static_cast<long>(ChunkedPrompt::kTokens), Median(whole) * 1e3);
  nlohmann::json report = {{"tokens", ChunkedPrompt::kTokens}, {"one_pass_seconds_median", Median(whole)}};
  for (const ChunkedPrompt& prompt : std::span(chunked_).subspan(1)) {
    std::vector<double> costs, last_to_first;
    for (size_t i = 0; i < whole.size(); ++i) {
      costs.push_back(prompt.seconds[i] / whole[i]);
      last_to_first.push_back(prompt.last_seconds[i] / prompt.first_seconds[i]);
    }
    std::printf("  in chunks of %3ld: %.1f ms, %.3f times one pass; last chunk %+.1f %% to the first\n",
                static_cast<long>(prompt.chunk), Median(prompt.seconds) * 1e3, Median(costs),
                (Median(last_to_first) - 1) * 100);
    report["chunks"].push_back({{"chunk", prompt.chunk},
                                {"seconds_median", Median(prompt.seconds)},
                                {"to_one_pass", Median(costs)},
                                {"last_to_first", Median(last_to_first)}});
  }
  return report;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures forward passes of the CPU backend as shares of this machine's roofline.");
  app.add_option("--model", options.model, "Hugging Face directory; default: random weights of SmolLM2-135M's shape");
  app.add_option("--kernels", options.kernels, "portable, avx2, avx512 or avx512bf16; default: the fastest");
  app.add_option("--threads", options.threads, "threads, default: all cores")->check(CLI::Range(1, 1024));
  app.add_option("--rounds", options.rounds, "measurements of each case")->check(CLI::Range(1, 10000));
  app.add_option("--json", options.json, "write the results to this file");
  CLI11_PARSE(app, argc, argv);

  const auto kernels = options.kernels.empty() ? &SelectKernels() : KernelsNamed(options.kernels);
  if (!kernels.ok()) return Fail(kernels.status());
  std::unique_ptr<Weights> weights;
  if (options.model.empty()) {
    weights = std::make_unique<RandomWeights>(SmolLm2Shape(), 1);
  } else {
    auto loaded = LoadWeights(options.model);
    if (!loaded.ok()) return Fail(loaded.status());
    weights = *std::move(loaded);
  }
  Bench bench(options, weights->config, **kernels);
  if (const absl::Status started = bench.Start(*weights); !started.ok()) return Fail(started);
  // The backend has packed copies of all weights.
  weights.reset();
  bench.Run();
  const nlohmann::json report = bench.Report();
  return WriteReport(report, options.json);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
