#include "backend/fixed_cost.h"

#include "catch.h"

namespace baton {
namespace {

TEST_CASE("FixedTokens returns the tokens computed in a step's fixed time") {
  ModelConfig model;
  model.layers = 3;
  model.hidden = 8;
  model.ffn = 16;
  model.heads = 2;
  model.kv_heads = 1;
  model.head_dim = 4;
  // A layer has 576 parameters: 128 for q, k and v, 64 for o, 384 for the MLP. Reading one takes
  // 2 / 100 s, and using it takes 2 / 500 s.
  CHECK(FixedTokens(model, {.flops = 500, .memory_bytes = 100, .overhead = absl::ZeroDuration()}) == Approx(5));
  CHECK(FixedTokens(model, {.flops = 500, .memory_bytes = 100, .overhead = absl::Seconds(7)}) ==
        Approx(5 + 7 / (3 * 576 * 2 / 500.0)));
}

TEST_CASE("FixedTokens gives large models about six tokens on a CPU and more on a GPU") {
  ModelConfig llama8b;
  llama8b.layers = 32;
  llama8b.hidden = 4096;
  llama8b.ffn = 14336;
  llama8b.heads = 32;
  llama8b.kv_heads = 8;
  llama8b.head_dim = 128;
  CHECK(FixedTokens(llama8b, kCpuRates) == Approx(5.8).margin(0.1));
  CHECK(FixedTokens(llama8b, kGpuRates) == Approx(100).margin(1));
}

}  // namespace
}  // namespace baton
