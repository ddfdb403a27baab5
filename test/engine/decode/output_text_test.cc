// The text of outputs that end at a stop string or a special token, or begin or end inside a
// character.
#include <algorithm>
#include <random>

#include "outputs.h"
#include "seeds.h"

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

TEST_CASE("DecodeEngine reports a stop whenever a stop string cuts the text") {
  constexpr TokenId kLead = 26;  // the first byte of "é"
  int completed_by_end = 0;
  const Seeds seeds = ForEachSeed(200, [&](uint64_t seed) {
    std::mt19937 rng(seed);
    const std::vector<TokenId> prompt = RandomPrompt(rng, 5);
    const std::vector<TokenId> greedy = FakeBackend::Greedy(prompt, 30);
    const auto lead = std::ranges::find(greedy, kLead);
    const bool cut = lead != greedy.end();
    DecodeJob job = TestJob("r", prompt, cut ? static_cast<int32_t>(lead - greedy.begin() + 1) : 30);
    const Output whole = RunAlone(job);
    CHECK(whole.finish == FinishReason::kLength);
    CHECK(whole.text.ends_with("\uFFFD") >= cut);

    // A part of the text is the stop string. Every second one is the end of the text.
    std::vector<size_t> begins;
    for (size_t i = 0; i < whole.text.size(); ++i) {
      if ((whole.text[i] & 0xC0) != 0x80) begins.push_back(i);
    }
    begins.push_back(whole.text.size());
    if (begins.size() == 1) return;
    const size_t first = rng() % (begins.size() - 1);
    const size_t last = rng() % 2 == 0 ? begins.size() - 1 : first + 1 + rng() % (begins.size() - 1 - first);
    const std::string stop = whole.text.substr(begins[first], begins[last] - begins[first]);
    const size_t at = whole.text.find(stop);
    completed_by_end += cut && at + stop.size() == whole.text.size();

    job.spec.sampling.stop = {stop};
    const Output stopped = RunAlone(job);
    CHECK(stopped.text == whole.text.substr(0, at));
    CHECK(stopped.finish == FinishReason::kStop);
  });
  if (seeds.all()) CHECK(completed_by_end > 20);
}

}  // namespace
}  // namespace baton
