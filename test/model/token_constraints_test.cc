#include "model/token_constraints.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "catch.h"
#include "model/byte_model.h"
#include "model/reference_sampler.h"
#include "model/sampler.h"
#include "seeds.h"

namespace baton {
namespace {

// A request's parameters with the rules that they mean, for a reference by definition.
struct Setting {
  SamplingParams params;
  TokenRules rules;
  std::optional<ThinkingMarks> marks;
  bool begun = false;
};

// Returns whether the first thinking of an output has reached its bound.
bool ThinkingIsOver(const Setting& setting, std::span<const TokenId> output) {
  if (!setting.marks) return false;
  auto begin = output.begin();
  if (!setting.begun) {
    begin = std::ranges::find(output, setting.marks->begin);
    if (begin++ == output.end()) return false;
  }
  const bool ended = std::find(begin, output.end(), setting.marks->end) != output.end();
  return !ended && output.end() - begin >= *setting.params.thinking_token_budget;
}

bool IsExcluded(const Setting& setting, TokenId id, std::span<const TokenId> output) {
  const auto has = [id](const std::vector<TokenId>& ids) { return std::ranges::find(ids, id) != ids.end(); };
  const SamplingParams& params = setting.params;
  if (!params.allowed_token_ids.empty() && !has(params.allowed_token_ids)) return true;
  if (std::ssize(output) < params.min_tokens && (has(params.stop_ids) || has(setting.rules.ends))) return true;
  std::vector<TokenId> with(output.begin(), output.end());
  with.push_back(id);
  return std::ranges::any_of(setting.rules.bad_words, [&](const std::vector<TokenId>& word) {
    return with.size() >= word.size() && std::equal(word.begin(), word.end(), with.end() - std::ssize(word));
  });
}

// Returns the logits of the token after `output`, with -inf for tokens that may not occur.
std::vector<float> Constrained(const Setting& setting, std::span<const float> logits, std::span<const TokenId> output) {
  std::vector<float> shaped(logits.begin(), logits.end());
  const bool forced = ThinkingIsOver(setting, output);
  for (TokenId id = 0; id < std::ssize(shaped); ++id) {
    float& logit = shaped[static_cast<size_t>(id)];
    if (forced) {
      if (id != setting.marks->end) logit = kExcluded;
      continue;
    }
    for (const TokenBias& bias : setting.params.logit_bias) {
      if (bias.id == id) logit += bias.bias;
    }
    if (IsExcluded(setting, id, output)) logit = kExcluded;
  }
  return shaped;
}

std::vector<TokenId> RandomIds(std::mt19937& random, TokenId vocab, size_t count) {
  std::vector<TokenId> ids(count);
  for (TokenId& id : ids) id = static_cast<TokenId>(random() % static_cast<uint32_t>(vocab));
  return ids;
}

Setting RandomSetting(std::mt19937& random, TokenId vocab) {
  std::uniform_real_distribution<float> unit(0, 1);
  Setting s;
  SamplingParams& params = s.params;
  params.draw.temperature = random() % 3 == 0 ? 0 : 0.5f + unit(random);
  params.seed = random();
  if (random() % 3 == 0) params.draw.repetition_penalty = 1.5f;
  if (random() % 3 == 0) params.draw.presence_penalty = 1;
  if (random() % 3 == 0) params.draw.top_k = 5;
  if (random() % 2 == 0) {
    std::set<TokenId> biased;
    for (const TokenId id : RandomIds(random, vocab, 5)) biased.insert(id);
    for (const TokenId id : biased) params.logit_bias.push_back({id, random() % 4 == 0 ? -100 : 8 * unit(random) - 4});
  }
  if (random() % 3 == 0) params.allowed_token_ids = RandomIds(random, vocab, 1 + random() % 8);
  if (random() % 2 == 0) params.min_tokens = static_cast<int32_t>(random() % 12);
  if (random() % 2 == 0) params.stop_ids = RandomIds(random, vocab, random() % 4);
  if (random() % 2 == 0) s.rules.ends = RandomIds(random, vocab, 2);
  if (random() % 2 == 0) {
    for (int i = 0; i < 6; ++i) s.rules.bad_words.push_back(RandomIds(random, vocab, 1 + random() % 3));
  }
  if (random() % 2 == 0) {
    params.thinking_token_budget = static_cast<int32_t>(random() % 6);
    s.marks = {.begin = 0, .end = 1};
    s.begun = random() % 2 == 0;
    s.rules.thinking.emplace(*s.marks, s.begun, *params.thinking_token_budget);
  }
  return s;
}

TEST_CASE("Sampler chooses as a reference by definition does when tokens are excluded") {
  int compared = 0, nothing = 0, forced = 0;
  const Seeds seeds = ForEachSeed(400, [&](uint64_t seed) {
    std::mt19937 random(seed);
    const auto vocab = static_cast<TokenId>(3 + random() % 12);
    const Setting setting = RandomSetting(random, vocab);
    std::normal_distribution<float> normal;
    Sampler sampler(setting.params, {}, 0, setting.rules);
    SamplingParams unconstrained{.draw = setting.params.draw, .seed = setting.params.seed};
    Sampler plain(unconstrained, {}, 0);
    SamplerScratch scratch;
    std::vector<TokenId> output;
    for (int i = 0; i < 40; ++i) {
      std::vector<float> logits(static_cast<size_t>(vocab));
      for (float& logit : logits) logit = normal(random);
      const std::vector<float> shaped = Constrained(setting, logits, output);
      const bool possible = std::ranges::any_of(shaped, [](float logit) { return logit > kExcluded; });
      TokenLogprobs logprobs;
      const absl::StatusOr<TokenId> got = sampler.Sample(logits, scratch, &logprobs);
      REQUIRE(got.ok() == possible);
      if (!possible) {
        CHECK(absl::IsInvalidArgument(got.status()));
        CHECK(Message(got.status()).ends_with(absl::StrCat(" as token ", i, " of the output")));
        ++nothing;
        return;
      }
      double slack = 0;
      const SampledToken expected = NaiveSample(shaped, plain.Spec(), &slack);
      if (slack > 1e-5) {
        CHECK(*got == expected.id);
        ++compared;
      }
      double sum = 0;
      for (const float logit : logits) sum += std::exp(double{logit});
      CHECK(logprobs.logprob == Approx(logits[static_cast<size_t>(*got)] - std::log(sum)).margin(1e-5));
      forced += ThinkingIsOver(setting, output);
      plain.Accept(*got);
      output.push_back(*got);
    }
  });
  if (seeds.all()) {
    CHECK(compared > 8000);
    CHECK(nothing > 10);
    CHECK(forced > 50);
  }
}

std::map<TokenId, float> ById(const TokenBiases& biases) {
  std::map<TokenId, float> by_id;
  for (const auto& [id, bias] : biases.list) by_id[id] = bias;
  CHECK(by_id.size() == biases.list.size());
  if (biases.only) by_id[-1] = 0;
  return by_id;
}

TEST_CASE("Settled constraints are the same whatever the tokens in between are") {
  int settled = 0, open = 0;
  const Seeds seeds = ForEachSeed(300, [&](uint64_t seed) {
    std::mt19937 random(seed);
    const auto vocab = static_cast<TokenId>(3 + random() % 4);
    const Setting setting = RandomSetting(random, vocab);
    TokenConstraints constraints(setting.params, setting.rules);
    for (int i = 0; i < 20; ++i) {
      CHECK(constraints.IsSettled(0));
      const int64_t ahead = 1 + static_cast<int64_t>(random() % 3);
      const bool is_settled = constraints.IsSettled(ahead);
      (is_settled ? settled : open) += 1;
      for (int way = 0; is_settled && way < 30; ++way) {
        TokenConstraints later = constraints;
        for (const TokenId id : RandomIds(random, vocab, static_cast<size_t>(ahead))) later.Accept(id);
        CHECK(ById(later.At(0)) == ById(constraints.At(ahead)));
      }
      constraints.Accept(RandomIds(random, vocab, 1)[0]);
    }
  });
  if (seeds.all()) {
    CHECK(settled > 2000);
    CHECK(open > 500);
  }
}

// A tokenizer of bytes, with tokens for "<think>" and "</think>".
class ThinkingTokenizer : public ByteTokenizer {
 public:
  static constexpr TokenId kBegin = 0, kEnd = 1;
  using ByteTokenizer::ByteTokenizer;
  std::vector<TokenId> Encode(std::string_view text, SpecialTokens special) const override {
    if (text == "<think>") return {kBegin};
    if (text == "</think>") return {kEnd};
    return ByteTokenizer::Encode(text, special);
  }
};

TEST_CASE("RulesOf gives a bad word's tokens with and without a space before it") {
  const ByteTokenizer bytes;
  SamplingParams params;
  params.bad_words = {"ab", "  c", "  "};
  const TokenId ends[] = {7};
  const TokenRules rules = RulesOf(params, bytes, ends, {});
  CHECK(rules.bad_words ==
        std::vector<std::vector<TokenId>>{{'a', 'b'}, {' ', 'a', 'b'}, {'c'}, {' ', 'c'}, {' '}, {' ', ' '}});
  CHECK(rules.ends == std::vector<TokenId>{7});
  CHECK_FALSE(rules.thinking.has_value());
}

TEST_CASE("RulesOf bounds thinking if both marks are tokens and a budget is set") {
  const ThinkingTokenizer thinking;
  const ByteTokenizer bytes;
  SamplingParams params;
  CHECK_FALSE(RulesOf(params, thinking, {}, {}).thinking.has_value());
  params.thinking_token_budget = 0;
  CHECK_FALSE(RulesOf(params, bytes, {}, {}).thinking.has_value());
  const auto forces = [&](const std::vector<TokenId>& prompt) {
    const TokenRules rules = RulesOf(params, thinking, {}, prompt);
    REQUIRE(rules.thinking.has_value());
    CHECK(rules.thinking->end_mark() == ThinkingTokenizer::kEnd);
    return rules.thinking->forces();
  };
  CHECK_FALSE(forces({}));
  CHECK_FALSE(forces({'\n', ' '}));
  CHECK_FALSE(forces({0, 'a'}));
  CHECK_FALSE(forces({0, 1, '\n', '\n'}));
  CHECK(forces({'a', 0}));
  CHECK(forces({'a', 0, '\n'}));
}

TEST_CASE("TokenConstraints report that they allow nothing from the beginning") {
  SamplingParams params;
  params.allowed_token_ids = {1, 2};
  const auto nothing = [&](TokenRules rules) { return TokenConstraints(params, std::move(rules)).AllowNothing(); };
  CHECK_FALSE(nothing({}));
  CHECK_FALSE(nothing({.bad_words = {{1}}}));
  CHECK(nothing({.bad_words = {{1}, {2}}}));
  CHECK_FALSE(nothing({.bad_words = {{1, 2}, {2, 1}, {1, 1}, {2, 2}}}));
  CHECK_FALSE(nothing({.ends = {1, 2}}));
  params.min_tokens = 1;
  CHECK(nothing({.ends = {1, 2}}));
  params.stop_ids = {2};
  CHECK(nothing({.ends = {1}}));
  CHECK_FALSE(nothing({.ends = {3}}));
}

}  // namespace
}  // namespace baton
