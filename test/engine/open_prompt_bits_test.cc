// Same tokens in, same bits out (design idea 5), for prompts that grow: however a prompt comes, whatever steps compute
// it, whatever is computed beside it and is in the cache, the logits of the decode step after it are those of one pass.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backend/cpu/backend_fixture.h"
#include "catch.h"
#include "engine/prefill_scheduler.h"
#include "model/weights.h"

namespace baton {
namespace {

struct Growing {
  RequestId id;
  std::vector<TokenId> tokens;  // the whole prompt, [0, n)
  int64_t come = 0;             // of [0, n - 1), which KV is made for
  bool added = false;
};

class RandomPrompts {
 public:
  RandomPrompts(const Weights& weights, const std::string& kernels, unsigned seed)
      : random_(seed),
        prefill_(weights, {.lm_head = false, .kernels = kernels}, seed),
        decode_(weights, {.kernels = kernels}, seed + 1),
        scheduler_(pool_, tree_, Size(1, 12) * kBlockTokens, {.increment = Size(1, 80), .step_tokens = Size(16, 200)}) {
    const std::vector<TokenId> shared = prefill_.RandomTokens(Size(1, 100));
    for (int i = 0; i < 7; ++i) {
      Growing& prompt = prompts_.emplace_back(Growing{.id = absl::StrCat(i), .tokens = shared});
      prompt.tokens.resize(static_cast<size_t>(Size(1, std::ssize(shared))));
      const std::vector<TokenId> own = prefill_.RandomTokens(Size(1, 90));
      prompt.tokens.insert(prompt.tokens.end(), own.begin(), own.end());
    }
  }

  // Until all were compared, but for one that is given up on the way. Some come when others are in the cache.
  void Run() {
    while (!prompts_.empty()) {
      Growing& prompt = prompts_[static_cast<size_t>(Size(0, std::min<int64_t>(3, std::ssize(prompts_)) - 1))];
      if (prompt.come < std::ssize(prompt.tokens) - 1) {
        Grow(prompt);
      } else if (given_up_ == 0 && Size(0, 19) == 0) {
        ++given_up_;
        Forget(prompt.id);
      }
      for (int64_t steps = Size(0, 2); steps > 0; --steps) Step();
    }
    CHECK(pool_.counts().referenced == 0);
  }

 private:
  int64_t Size(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }

  // Whole blocks, and with the last of them the rest.
  void Grow(Growing& prompt) {
    const int64_t all = std::ssize(prompt.tokens) - 1;
    const int64_t more = Size(prompt.added ? 1 : 0, 4) * kBlockTokens;
    const int64_t end = std::min(all, prompt.come + more);
    const auto keys = BlockKeys(RootKey(std::array<uint8_t, 32>{}, ""), std::span(prompt.tokens).first(end));
    const auto fresh = std::span(prompt.tokens).subspan(prompt.come, end - prompt.come);
    if (!prompt.added) {
      REQUIRE(
          scheduler_
              .Add({.request_id = prompt.id, .tokens = {fresh.begin(), fresh.end()}, .keys = keys, .open = end < all})
              .ok());
    } else {
      REQUIRE(
          scheduler_.Extend(prompt.id, fresh, std::span(keys).subspan(prompt.come / kBlockTokens), end == all).ok());
    }
    prompt.added = true;
    prompt.come = end;
    CompareComplete();
  }

  void Step() {
    const Batch& batch = scheduler_.PlanStep();
    if (!batch.slices.empty()) {
      prefill_.Run(batch);
      REQUIRE(scheduler_.FinishStep(true).empty());
    }
    CompareComplete();
  }

  void CompareComplete() {
    for (size_t i = 0; i < prompts_.size();) {
      if (!scheduler_.IsComplete(prompts_[i].id)) {
        ++i;
        continue;
      }
      CompareLogits(prompts_[i]);
      Forget(prompts_[i].id);
    }
  }

  // By a decode worker that is given the blocks.
  void CompareLogits(const Growing& prompt) {
    const int64_t n = std::ssize(prompt.tokens), block_bytes = prefill_->kv_layout().BlockBytes();
    INFO("a prompt of " << n << " tokens");
    const TestSequence moved = decode_.Place(prompt.tokens), alone = decode_.Place(prompt.tokens);
    const std::span<const BlockId> blocks = scheduler_.blocks(prompt.id);
    REQUIRE(std::ssize(blocks) >= BlocksFor(n - 1));
    for (int64_t i = 0; i < BlocksFor(n - 1); ++i) {
      std::memcpy(decode_->kv_slab().data() + moved.blocks[i].value() * block_bytes,
                  prefill_->kv_slab().data() + blocks[i].value() * block_bytes, static_cast<size_t>(block_bytes));
    }
    const std::vector<float> expected = decode_.Run({{alone.Slice(0, n, true)}});
    const std::vector<float> got = decode_.Run({{moved.Slice(n - 1, n, true)}});
    REQUIRE(std::ranges::all_of(expected, [](float logit) { return std::isfinite(logit); }));
    REQUIRE(SameBits(expected, got));
  }

  void Forget(RequestId id) {
    scheduler_.Remove(id);
    std::erase_if(prompts_, [&](const Growing& prompt) { return prompt.id == id; });
  }

  std::mt19937 random_;
  TestBackend prefill_, decode_;
  BlockPool pool_{TestBackend::kBlocks};
  RadixTree tree_{pool_};
  PrefillScheduler scheduler_;
  std::vector<Growing> prompts_;
  int given_up_ = 0;
};

TEST_CASE("the logits after a prompt that grew are, bit for bit, those of one pass") {
  const unsigned first = std::random_device{}();
  for (const std::string& kernels : KernelNames()) {
    for (const std::string model :
         {"llama3_f32", "llama3_bf16", "qwen2_5_f32", "qwen2_5_bf16", "qwen3_f32", "qwen3_bf16"}) {
      const auto weights = LoadWeights(BATON_SOURCE_DIR "/test/golden/tiny_" + model);
      REQUIRE(weights.ok());
      for (unsigned seed = first; seed != first + 3; ++seed) {
        INFO(model << ", kernels " << kernels << ", seed " << seed);
        RandomPrompts(**weights, kernels, seed).Run();
      }
    }
  }
}

}  // namespace
}  // namespace baton
