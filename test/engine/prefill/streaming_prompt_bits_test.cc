// Same tokens in, same bits out (design idea 5), for streaming prompts. The logits of the decode
// step after a prompt are those of one pass. They do not depend on the prompt's increments, on the
// steps that compute it, on other prompts in these steps, or on the cache.
#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "engine/prefill/decode_bits.h"
#include "engine/prefill/scheduler.h"

namespace baton {
namespace {

struct StreamingPrompt {
  RequestId id;
  std::vector<TokenId> tokens;  // the whole prompt, [0, n)
  int64_t come = 0;             // [0, come) of the KV tokens [0, n - 1) have arrived
  bool added = false;
};

class RandomPrompts {
 public:
  RandomPrompts(const Weights& weights, const std::string& kernels, uint64_t seed)
      : random_(seed),
        prefill_(weights, {.lm_head = false, .kernels = kernels}, seed),
        decode_(weights, {.kernels = kernels}, seed + 1),
        scheduler_(pool_, tree_, Size(1, 12) * kBlockTokens, {.increment = Size(1, 80), .step_tokens = Size(16, 200)}) {
    const std::vector<TokenId> shared = prefill_.RandomTokens(Size(1, 100));
    for (int i = 0; i < 7; ++i) {
      StreamingPrompt& prompt = prompts_.emplace_back(StreamingPrompt{.id = absl::StrCat(i), .tokens = shared});
      prompt.tokens.resize(static_cast<size_t>(Size(1, std::ssize(shared))));
      const std::vector<TokenId> own = prefill_.RandomTokens(Size(1, 90));
      prompt.tokens.insert(prompt.tokens.end(), own.begin(), own.end());
    }
  }

  // Runs until all prompts were compared, except one that is removed early. Some prompts arrive
  // when others are in the cache.
  void Run() {
    while (!prompts_.empty()) {
      StreamingPrompt& prompt = prompts_[static_cast<size_t>(Size(0, std::min<int64_t>(3, std::ssize(prompts_)) - 1))];
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

  // Appends whole blocks, and with the last of them the rest of the prompt.
  void Grow(StreamingPrompt& prompt) {
    const int64_t all = std::ssize(prompt.tokens) - 1;
    const int64_t more = Size(prompt.added ? 1 : 0, 4) * kBlockTokens;
    const int64_t end = std::min(all, prompt.come + more);
    const auto keys = BlockKeys(RootKey(std::array<uint8_t, 32>{}, ""), std::span(prompt.tokens).first(end));
    std::vector<TokenId> come(prompt.tokens.begin(), prompt.tokens.begin() + end);
    if (!prompt.added) {
      REQUIRE(scheduler_
                  .Add({.id = prompt.id,
                        .spec = {.tokens = std::move(come)},
                        .kv_tokens = end,
                        .keys = keys,
                        .streaming = end < all})
                  .ok());
    } else {
      const auto fresh_keys = std::span(keys).subspan(prompt.come / kBlockTokens);
      REQUIRE(scheduler_.Extend(prompt.id, std::move(come), end, fresh_keys, end == all).ok());
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
      INFO("a prompt of " << prompts_[i].tokens.size() << " tokens");
      CheckDecodesLikeOnePass(prefill_, scheduler_.prompt(prompts_[i].id).table.ids(), decode_, prompts_[i].tokens);
      Forget(prompts_[i].id);
    }
  }

  void Forget(RequestId id) {
    scheduler_.Remove(id);
    std::erase_if(prompts_, [&](const StreamingPrompt& prompt) { return prompt.id == id; });
  }

  std::mt19937 random_;
  TestBackend prefill_, decode_;
  BlockPool pool_{TestBackend::kBlocks};
  RadixTree tree_{pool_};
  PrefillScheduler scheduler_;
  std::vector<StreamingPrompt> prompts_;
  int given_up_ = 0;
};

TEST_CASE("Logits after a streaming prompt are bit-equal to those of one pass") {
  ForEachTinyModel(3, [](const Weights& weights, const std::string& kernels, uint64_t seed) {
    RandomPrompts(weights, kernels, seed).Run();
  });
}

}  // namespace
}  // namespace baton
