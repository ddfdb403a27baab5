// Measures the host's work of the CUDA backend for a decode step, from the call to the last launch,
// without a GPU.
//
// The device is the host (test/host_device). A launch costs almost nothing there, and the times
// leave out its computation. The device computes between launches, over more memory than the caches
// hold. The lists of each step are therefore not cached, as in a server with other threads. A real
// GPU adds the time of CUDA's own calls.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <deque>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_slab.h"
#include "base/check.h"
#include "bench/report.h"
#include "model/random_weights.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<int> streams = {1, 16, 64, 256};
  // Tokens of each stream before its first step.
  int history = 1024;
  int steps = 40;
  // Tokens of each stream to which penalties apply.
  int seen = 0;
  std::string json;
};

// Streams with histories of equal length. Each stream has its own blocks, in random order.
class Streams {
 public:
  Streams(int streams, int history, int64_t positions, int seen) : slices_(streams) {
    for (int i = 0; i < streams; ++i) {
      seen_.emplace_back();
      for (TokenId id = 0; id < seen; ++id) seen_.back().push_back({id, 1});
      samples_.push_back(
          {.draw = {.temperature = 0, .repetition_penalty = seen > 0 ? 1.1f : 1.0f}, .seen = seen_.back()});
    }
    const int64_t blocks = BlocksFor(positions);
    std::vector<BlockId> ids;
    for (int64_t i = 0; i < streams * blocks; ++i) ids.push_back(BlockId(static_cast<uint32_t>(i)));
    std::mt19937 random(1);
    std::shuffle(ids.begin(), ids.end(), random);
    for (int i = 0; i < streams; ++i) {
      tables_.emplace_back(ids.begin() + i * blocks, ids.begin() + (i + 1) * blocks);
      slices_[static_cast<size_t>(i)] = {.tokens = kToken,
                                         .start = history,
                                         .blocks = std::span(tables_.back()).first(BlocksFor(history + 1)),
                                         .wants_logits = true,
                                         .sample = &samples_[static_cast<size_t>(i)]};
    }
  }

  Batch Begin() const { return {.slices = slices_}; }
  void Next(Batch& batch) const {
    for (size_t i = 0; i < tables_.size(); ++i) {
      SequenceSlice& slice = batch.slices[i];
      slice.blocks = std::span(tables_[i]).first(static_cast<size_t>(BlocksFor(++slice.start + 1)));
    }
  }

 private:
  static constexpr TokenId kToken[] = {1};
  std::deque<std::vector<SeenToken>> seen_;
  std::deque<SampleSpec> samples_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<SequenceSlice> slices_;
};

// Returns the median over the steps.
double HostMicroseconds(Backend& backend, const Streams& streams, int steps) {
  std::vector<double> us;
  Batch batch = streams.Begin();
  for (int step = 0; step < steps; ++step) {
    const auto begin = Clock::now();
    Clock::time_point enqueued;
    const auto logits = backend.Forward(batch, [](int64_t) { return true; },
                                        {[&] { enqueued = Clock::now(); }, [] { return nullptr; }});
    BATON_CHECK(logits.ok(), logits.status().ToString());
    streams.Next(batch);
    // The first steps run without a graph and are captured.
    if (step < 3) continue;
    us.push_back(std::chrono::duration<double, std::micro>(enqueued - begin).count());
  }
  return Median(us);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures what the CUDA backend's host does for a decode step, without a GPU.");
  app.add_option("--streams", options.streams, "requests of one batch, for each case")->check(CLI::Range(1, 1024));
  app.add_option("--history", options.history, "tokens before each stream's first step")->check(CLI::Range(0, 100'000));
  app.add_option("--steps", options.steps, "steps of each measurement")->check(CLI::Range(10, 10'000));
  app.add_option("--seen", options.seen, "tokens of each stream to which penalties apply")
      ->check(CLI::Range(0, 100'000));
  app.add_option("--json", options.json, "write the results to this file");
  CLI11_PARSE(app, argc, argv);

  // A small model. The host's work depends on streams and histories. For a graph it does not depend
  // on the model.
  ModelConfig shape;
  shape.layers = 1;
  shape.hidden = 64;
  shape.ffn = 128;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.head_dim = 64;
  shape.vocab = 128;
  shape.context = options.history + options.steps + 1;
  shape.tied_embeddings = true;
  const RandomWeights weights(shape, 1);
  const KvLayout layout = CudaKvLayout(shape);
  nlohmann::json cases = nlohmann::json::array();
  for (const int streams : options.streams) {
    const Streams batch(streams, options.history, shape.context, options.seen);
    const auto slab = CudaSlab::Allocate(0, streams * BlocksFor(shape.context) * layout.BlockBytes());
    BATON_CHECK(slab.ok(), slab.status().ToString());
    BATON_CHECK(cudaMemset((*slab)->slab().data(), 0, (*slab)->slab().size()) == cudaSuccess, "zeroing KV");
    const auto backend = MakeCudaBackend(weights, {.slab = (*slab)->slab(), .step = {streams, streams}});
    BATON_CHECK(backend.ok(), backend.status().ToString());
    const double us = HostMicroseconds(**backend, batch, options.steps);
    std::printf("%4d streams of %d tokens: %.1f us\n", streams, options.history, us);
    std::fflush(stdout);
    cases.push_back({{"streams", streams}, {"host_us", us}});
  }
  return WriteReport(nlohmann::json{{"history", options.history}, {"seen", options.seen}, {"cases", cases}},
                     options.json);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
