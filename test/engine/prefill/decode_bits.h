// Checks that a decode worker with KV of a prefill worker computes the logits of one pass over the
// prompt (design idea 5).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/backend_fixture.h"
#include "catch.h"
#include "model/weights.h"
#include "seeds.h"
#include "source_path.h"

namespace baton {

// Copies `blocks` of `prefill`, the KV of all tokens but the last, to `decode`. REQUIREs that the
// logits of `decode` after the last token are equal, bit for bit, to those of one pass of its own.
inline void CheckDecodesLikeOnePass(TestBackend& prefill, std::span<const BlockId> blocks, TestBackend& decode,
                                    const std::vector<TokenId>& tokens) {
  const int64_t n = std::ssize(tokens), block_bytes = prefill->kv_layout().BlockBytes();
  REQUIRE(std::ssize(blocks) >= BlocksFor(n - 1));
  const TestSequence moved = decode.Place(tokens), alone = decode.Place(tokens);
  for (int64_t i = 0; i < BlocksFor(n - 1); ++i) {
    std::memcpy(decode->kv_slab().data() + moved.blocks[i].value() * block_bytes,
                prefill->kv_slab().data() + blocks[i].value() * block_bytes, static_cast<size_t>(block_bytes));
  }
  const std::vector<float> expected = decode.Run({{alone.Slice(0, n, true)}});
  const std::vector<float> got = decode.Run({{moved.Slice(n - 1, n, true)}});
  REQUIRE(std::ranges::all_of(expected, [](float logit) { return std::isfinite(logit); }));
  REQUIRE(SameBits(expected, got));
  decode.Free(moved);
  decode.Free(alone);
}

// Calls `run` for every model family in both precisions, with all kernels that this machine can
// run, and with `seeds` seeds each.
inline void ForEachTinyModel(
    uint64_t seeds, const std::function<void(const Weights&, const std::string& kernels, uint64_t seed)>& run) {
  for (const std::string& kernels : KernelNames()) {
    for (const std::string model :
         {"llama3_f32", "llama3_bf16", "qwen2_5_f32", "qwen2_5_bf16", "qwen3_f32", "qwen3_bf16"}) {
      const auto weights = LoadWeights(SourcePath("test/golden/tiny_" + model));
      REQUIRE(weights.ok());
      INFO(model << ", kernels " << kernels);
      ForEachSeed(seeds, [&](uint64_t seed) { run(**weights, kernels, seed); });
    }
  }
}

}  // namespace baton
