// Constraints of tokens in DecodeEngine.
#include <algorithm>
#include <random>
#include <string>

#include "catch.h"
#include "engine/decode/outputs.h"

namespace baton {
namespace {

TEST_CASE("DecodeEngine fails only the request whose constraints exclude all tokens") {
  const bool samples = GENERATE(false, true);
  DecodeWorld world(TestOptions(32));
  world.backend.samples = samples;
  DecodeJob job = TestJob("none", {1, 2, 3, 4}, 9);
  job.spec.sampling.allowed_token_ids = {0, 1};  // "a" and "b"
  job.spec.sampling.bad_words = {"aa", "ab", "ba", "bb"};
  world.StartJob(job);
  world.StartJob(TestJob("good", {5, 6, 7, 8, 9, 1, 2}, 5));
  world.RunAll();
  CHECK(world.outputs["none"].tokens.size() == 1);
  CHECK(
      world.outputs["none"].failure ==
      absl::InvalidArgumentError("allowed_token_ids, bad_words, min_tokens and logit_bias together exclude all tokens "
                                 "as token 1 of the output"));
  CHECK(world.outputs["good"].tokens == FakeBackend::Greedy({5, 6, 7, 8, 9, 1, 2}, 5));
  CHECK(world.AllBlocksBack());
}

TEST_CASE("DecodeEngine ends no output before min_tokens") {
  std::mt19937 rng(7);
  const std::vector<TokenId> prompt = RandomPrompt(rng, 5);
  DecodeEngineOptions options = TestOptions(32);
  for (TokenId id = 0; id < FakeBackend::kVocab; id += 2) options.model.eos_ids.push_back(id);
  DecodeWorld world(options);
  DecodeJob job = TestJob("by id", prompt, 30);
  job.spec.sampling.min_tokens = 12;
  for (TokenId id = 1; id < FakeBackend::kVocab - 3; id += 2) job.spec.sampling.stop_ids.push_back(id);
  world.StartJob(job);
  job.request_id = "by string";
  job.spec.sampling.stop_ids = {};
  job.spec.sampling.ignore_eos = true;
  for (char letter = 'a'; letter <= 'z'; ++letter) job.spec.sampling.stop.push_back({letter});
  for (char letter = 'A'; letter <= 'S'; ++letter) job.spec.sampling.stop.push_back({letter});
  world.StartJob(job);
  world.RunAll();
  for (const Output& output : {world.outputs["by id"], world.outputs["by string"]}) {
    CHECK(output.finish == FinishReason::kStop);
    CHECK(output.tokens.size() >= 13);
    CHECK(output.tokens.size() < 17);
  }
  CHECK(world.outputs["by string"].text.find_first_of("abcdefghijklm") != std::string::npos);
}

TEST_CASE("DecodeEngine forces the end of thinking at its bound") {
  std::mt19937 rng(8);
  for (const bool begun : {false, true}) {
    std::vector<TokenId> prompt = RandomPrompt(rng, 5);
    prompt.push_back(begun ? FakeTokenizer::kThink : 3);
    DecodeJob job = TestJob("r", prompt, 30);
    job.spec.sampling.thinking_token_budget = 4;
    // The mark is forced although it is a stop id, and does not end the output before min_tokens.
    job.spec.sampling.stop_ids = {FakeTokenizer::kThinkEnd};
    job.spec.sampling.min_tokens = 30;
    if (!begun) job.spec.sampling.logit_bias = {{FakeTokenizer::kThink, 100}};
    job.spec.sampling.logit_bias.push_back({FakeTokenizer::kThinkEnd, -100});
    const Output output = RunAlone(job);
    REQUIRE(output.tokens.size() == 30);
    CHECK(std::ranges::find(output.tokens, FakeTokenizer::kThinkEnd) - output.tokens.begin() == (begun ? 4 : 5));
  }
}

}  // namespace
}  // namespace baton
