// The text of outputs that end at a special token, or begin inside a character.
#include <algorithm>
#include <random>

#include "outputs.h"

namespace baton {
namespace {

TEST_CASE("DecodeEngine ends an output at a special token's name as at its id") {
  std::mt19937 rng(3);
  std::vector<TokenId> prompt;
  std::span<const TokenId> shown;  // the output before the special token
  std::vector<TokenId> greedy;
  const auto is_letter = [](TokenId id) { return id < 26; };
  while (shown.size() < 2 || !is_letter(shown.back()) || !is_letter(shown[shown.size() - 2])) {
    prompt = RandomPrompt(rng, 5);
    greedy = FakeBackend::Greedy(prompt, 30);
    const auto special = std::ranges::find(greedy, FakeTokenizer::kSpecial);
    shown = special == greedy.end() ? std::span<const TokenId>() : std::span(greedy.begin(), special);
  }
  DecodeJob job = TestJob("r", prompt, 30);
  job.spec.sampling.stop_ids = {FakeTokenizer::kSpecial};
  const Output by_id = RunAlone(job);
  CHECK(by_id.tokens.size() == shown.size() + 1);
  CHECK(by_id.text == TextOf(shown, prompt));
  CHECK(by_id.finish == FinishReason::kStop);

  const std::string name(TestTokenizer().TokenBytes(FakeTokenizer::kSpecial));
  job.spec.sampling.stop_ids = {};
  job.spec.sampling.stop = {name};
  CheckSame(RunAlone(job), by_id, /*backend_samples=*/false);

  job.spec.sampling.stop = {by_id.text.substr(by_id.text.size() - 2) + name};
  const Output longer = RunAlone(job);
  CHECK(longer.tokens == by_id.tokens);
  CHECK(longer.text == by_id.text.substr(0, by_id.text.size() - 2));
  CHECK(longer.finish == FinishReason::kStop);
}

TEST_CASE("DecodeEngine begins the text with the character that the prompt begins") {
  std::mt19937 rng(1);
  std::vector<TokenId> prompt;
  // Tokens 26 and 27 are the bytes of "é".
  do {
    prompt = RandomPrompt(rng, 5);
    prompt.push_back(26);
  } while (FakeBackend::NextToken(prompt) != 27);
  const Output output = RunAlone(TestJob("r", prompt, 3));
  CHECK(output.text.starts_with("é"));
  CHECK(output.text == TextOf(output.tokens, prompt));
}

}  // namespace
}  // namespace baton
