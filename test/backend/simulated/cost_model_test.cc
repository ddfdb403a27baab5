#include "backend/simulated/cost_model.h"

#include <vector>

#include "backend/simulated/shapes.h"
#include "catch.h"

namespace baton {
namespace {

// A model that is small enough to count by hand. A layer has 576 parameters: qkv 8 x (2 + 2 x 1) x
// 4 = 128, o 8 x 8 = 64 and MLP 3 x 8 x 16 = 384. The head has 8 x 32 = 256 parameters.
ModelConfig Tiny() {
  ModelConfig model;
  model.layers = 3;
  model.hidden = 8;
  model.ffn = 16;
  model.heads = 2;
  model.kv_heads = 1;
  model.head_dim = 4;
  model.vocab = 32;
  return model;
}

// A device with 1,000 FLOP/s, of which kernels reach half, and 100 B/s.
DeviceShape Slow() {
  return {.name = "slow",
          .peak_flops = 1000,
          .efficiency = 0.5,
          .memory_bytes = 20000,
          .memory_rate = 100,
          .network_rate = 10,
          .host_rate = 64,
          .step_overhead = absl::Seconds(7)};
}

struct Slices {
  std::vector<TokenId> tokens;
  std::vector<BlockId> blocks;
  Batch batch;
  Slices() : tokens(100) {}
  void Add(int64_t count, int32_t start, bool wants_logits) {
    batch.slices.push_back({std::span(tokens).first(static_cast<size_t>(count)), start, blocks, wants_logits});
  }
};

TEST_CASE("A prefill step costs its tokens and their keys, without an LM head") {
  Slices step;
  step.Add(4, 10, false);
  const StepWork work = WorkOf(Tiny(), step.batch);
  // Two layers in full and the third layer's qkv have 2 x 576 + 128 = 1,280 parameters. They serve
  // 4 tokens. The tokens attend to 11, 12, 13 and 14 keys. Each key costs 2 x 2 x 2 heads x 4, in
  // two layers.
  CHECK(work.flops == Approx(2.0 * 4 * 1280 + 2 * 50 * 32));
  // Weights have 2 bytes each. KV of 14 tokens has 3 layers x 2 x 4 x 2 bytes for each token.
  CHECK(work.bytes == Approx(2.0 * 1280 + 14 * 48));
}

TEST_CASE("A decode step reads weights once and runs the last layer and head per row") {
  Slices step;
  step.Add(1, 5, true);
  step.Add(1, 9, true);
  const StepWork work = WorkOf(Tiny(), step.batch);
  const double all = 3 * 576 + 256;
  CHECK(work.flops == Approx(2.0 * 2 * all + 3 * (6 + 10) * 32));
  CHECK(work.bytes == Approx(2.0 * all + (6 + 10) * 48));
}

TEST_CASE("A step takes the longer of arithmetic and memory, plus its overhead") {
  CHECK(StepTime(Slow(), {.flops = 1000, .bytes = 100}) == absl::Seconds(2 + 7));
  CHECK(StepTime(Slow(), {.flops = 1000, .bytes = 500}) == absl::Seconds(5 + 7));
}

TEST_CASE("BlocksBeside fills nine tenths of the memory, minus the weights") {
  CHECK(WeightBytes(Tiny()) == Approx(2.0 * (3 * 576 + 2 * 256)));
  // 18,000 - 4,480 bytes, in blocks of 16 x 48.
  CHECK(BlocksBeside(Tiny(), Slow()) == 17);
  DeviceShape small = Slow();
  small.memory_bytes = 4000;
  CHECK(BlocksBeside(Tiny(), small) == 0);
}

TEST_CASE("CopyTime uses the rate of host copies") {
  CHECK(CopyTime(Tiny(), Slow(), 3) == absl::Seconds(3 * 16 * 48 / 64));
  CHECK(CopyTime(Tiny(), Slow(), 0) == absl::ZeroDuration());
}

TEST_CASE("FixedTokens returns the tokens computed in the fixed time of a simulated step") {
  // Reading a parameter takes 2 / 100 s, and using it takes 2 / 500 s. The overhead is 7 s.
  CHECK(FixedTokens(Tiny(), Slow()) == Approx(5 + 7 / (3 * 576 * 2 / 500.0)));
}

TEST_CASE("ModelNamed returns models of the size in their names") {
  const auto billions = [](const char* name) { return WeightBytes(*ModelNamed(name)) / 2e9; };
  CHECK(billions("qwen2.5-7b") == Approx(7.6).epsilon(0.01));
  CHECK(billions("qwen2.5-32b") == Approx(32.8).epsilon(0.01));
  CHECK(billions("llama-3.1-8b") == Approx(8.0).epsilon(0.01));
  CHECK(billions("smollm2-135m") == Approx(0.1345).epsilon(0.01));
  CHECK_FALSE(ModelNamed("gpt-5").ok());
  CHECK_FALSE(DeviceNamed("abacus").ok());
}

}  // namespace
}  // namespace baton
