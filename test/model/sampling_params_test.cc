#include "model/sampling_params.h"

#include <cmath>
#include <functional>
#include <limits>

#include "catch.h"

namespace baton {
namespace {

constexpr int64_t kVocab = 100;

SamplingParams Valid() {
  SamplingParams params;
  params.max_tokens = 10;
  return params;
}

TEST_CASE("Validate accepts ordinary sampling parameters and values at the limits") {
  CHECK(Validate(Valid(), kVocab).ok());
  SamplingParams params = Valid();
  params.draw.temperature = 0;
  params.draw.top_k = std::numeric_limits<int32_t>::max();
  params.draw.top_p = 1e-6f;
  params.draw.min_p = 0.999f;
  params.draw.repetition_penalty = 0.01f;
  params.draw.presence_penalty = -2;
  params.draw.frequency_penalty = 2;
  params.max_tokens = std::numeric_limits<int32_t>::max();
  params.stop.assign(64, std::string(1024, 'x'));
  params.stop[0] = "\u00e9\u20ac\U0001F600";
  params.stop_ids.assign(256, 99);
  params.logprobs = 20;
  for (TokenId id = 0; id < kVocab; ++id) params.logit_bias.push_back({id, id % 2 == 0 ? -100.0f : 100.0f});
  params.min_tokens = std::numeric_limits<int32_t>::max();
  params.allowed_token_ids.assign(4096, 99);
  params.bad_words.assign(256, std::string(128, 'x'));
  params.thinking_token_budget = 0;
  CHECK(Validate(params, kVocab).ok());
}

TEST_CASE("Validate refuses a sampling parameter out of range with the field's name") {
  const float nan = std::nanf("");
  const float inf = std::numeric_limits<float>::infinity();
  struct Case {
    const char* field;
    std::function<void(SamplingParams&)> set;
  };
  const Case cases[] = {
      {"temperature", [&](auto& p) { p.draw.temperature = nan; }},
      {"temperature", [&](auto& p) { p.draw.temperature = -0.1f; }},
      {"temperature", [&](auto& p) { p.draw.temperature = inf; }},
      {"top_k", [&](auto& p) { p.draw.top_k = -1; }},
      {"top_p", [&](auto& p) { p.draw.top_p = -0.01f; }},
      {"top_p", [&](auto& p) { p.draw.top_p = 1.01f; }},
      {"top_p", [&](auto& p) { p.draw.top_p = nan; }},
      {"min_p", [&](auto& p) { p.draw.min_p = 1; }},
      {"min_p", [&](auto& p) { p.draw.min_p = nan; }},
      {"min_p", [&](auto& p) { p.draw.min_p = -0.5f; }},
      {"repetition_penalty", [&](auto& p) { p.draw.repetition_penalty = 0; }},
      {"repetition_penalty", [&](auto& p) { p.draw.repetition_penalty = nan; }},
      {"repetition_penalty", [&](auto& p) { p.draw.repetition_penalty = inf; }},
      {"presence_penalty", [&](auto& p) { p.draw.presence_penalty = 2.1f; }},
      {"presence_penalty", [&](auto& p) { p.draw.presence_penalty = nan; }},
      {"frequency_penalty", [&](auto& p) { p.draw.frequency_penalty = -2.1f; }},
      {"max_tokens", [&](auto& p) { p.max_tokens = -5; }},
      {"logprobs", [&](auto& p) { p.logprobs = 21; }},
      {"logprobs", [&](auto& p) { p.logprobs = -1; }},
      {"stop: expected at most 64 strings, got 1000000", [&](auto& p) { p.stop.assign(1000000, "x"); }},
      {"stop[1]",
       [&](auto& p) {
         p.stop = {"a", ""};
       }},
      {"stop[0]", [&](auto& p) { p.stop = {std::string(1025, 'x')}; }},
      {"stop[0]", [&](auto& p) { p.stop = {"\xc3"}; }},
      {"stop[0]", [&](auto& p) { p.stop = {"\x80"}; }},
      {"stop[0]", [&](auto& p) { p.stop = {"\xc0\x80"}; }},
      {"stop[0]", [&](auto& p) { p.stop = {"\xed\xa0\x80"}; }},
      {"stop[0]", [&](auto& p) { p.stop = {"\xf4\x90\x80\x80"}; }},
      {"stop_ids: expected at most 256 ids, got 257", [&](auto& p) { p.stop_ids.assign(257, 1); }},
      {"stop_ids[1]",
       [&](auto& p) {
         p.stop_ids = {1, 100};
       }},
      {"stop_ids[0]", [&](auto& p) { p.stop_ids = {-1}; }},
      {"logit_bias: expected at most 1024 tokens, got 100000", [&](auto& p) { p.logit_bias.resize(100000); }},
      {"logit_bias: expected a token id in [0, 100), got 100",
       [&](auto& p) {
         p.logit_bias = {{100, 1}};
       }},
      {"logit_bias: expected a token id in [0, 100), got -1",
       [&](auto& p) {
         p.logit_bias = {{-1, 1}};
       }},
      {"logit_bias: expected each token once, got token 3 again",
       [&](auto& p) {
         p.logit_bias = {{3, 1}, {4, 1}, {3, 2}};
       }},
      {"logit_bias: expected a number in [-100, 100], got nan",
       [&](auto& p) {
         p.logit_bias = {{3, nan}};
       }},
      {"logit_bias: expected a number in [-100, 100], got -inf",
       [&](auto& p) {
         p.logit_bias = {{3, -inf}};
       }},
      {"logit_bias: expected a number in [-100, 100], got 100.00000",
       [&](auto& p) {
         p.logit_bias = {{3, std::nextafter(100.0f, inf)}};
       }},
      {"min_tokens", [&](auto& p) { p.min_tokens = -1; }},
      {"allowed_token_ids: expected at most 4096 ids, got 4097", [&](auto& p) { p.allowed_token_ids.assign(4097, 1); }},
      {"allowed_token_ids[1]",
       [&](auto& p) {
         p.allowed_token_ids = {1, 100};
       }},
      {"bad_words: expected at most 256 strings, got 257", [&](auto& p) { p.bad_words.assign(257, "x"); }},
      {"bad_words[0]", [&](auto& p) { p.bad_words = {""}; }},
      {"bad_words[0]: expected 1 to 128 bytes, got 129", [&](auto& p) { p.bad_words = {std::string(129, 'x')}; }},
      {"bad_words[0]", [&](auto& p) { p.bad_words = {"\xed\xa0\x80"}; }},
      {"thinking_token_budget", [&](auto& p) { p.thinking_token_budget = -1; }},
  };
  for (const Case& c : cases) {
    SamplingParams params = Valid();
    c.set(params);
    const absl::Status status = Validate(params, kVocab);
    INFO(c.field << ": " << status);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()).find(c.field) != std::string::npos);
    CHECK(std::string(status.message()).find("expected") != std::string::npos);
  }
}

TEST_CASE("Validate accepts a number at the ends of its range and refuses it beyond them") {
  struct Case {
    const char* field;
    float valid, invalid;
    std::function<void(SamplingParams&, float)> set;
  };
  const auto draw = [](float DrawParams::*member) {
    return [member](SamplingParams& p, float value) { p.draw.*member = value; };
  };
  const auto temperature = draw(&DrawParams::temperature), top_p = draw(&DrawParams::top_p),
             min_p = draw(&DrawParams::min_p), repetition = draw(&DrawParams::repetition_penalty),
             presence = draw(&DrawParams::presence_penalty), frequency = draw(&DrawParams::frequency_penalty);
  const auto logprobs = [](SamplingParams& p, float value) { p.logprobs = static_cast<int32_t>(value); };
  const auto stops = [](SamplingParams& p, float count) { p.stop.assign(static_cast<size_t>(count), "x"); };
  const Case cases[] = {
      {"temperature", 0, -0.001f, temperature},
      {"temperature", 100, 100.01f, temperature},
      {"top_p", 0, -0.001f, top_p},
      {"top_p", 1, 1.001f, top_p},
      {"min_p", 0, -0.001f, min_p},
      {"min_p", 0.999f, 1, min_p},
      {"repetition_penalty", 0.01f, 0.009f, repetition},
      {"repetition_penalty", 100, 100.01f, repetition},
      {"presence_penalty", -2, -2.001f, presence},
      {"presence_penalty", 2, 2.001f, presence},
      {"frequency_penalty", -2, -2.001f, frequency},
      {"frequency_penalty", 2, 2.001f, frequency},
      {"top_k", 0, -1, [](SamplingParams& p, float value) { p.draw.top_k = static_cast<int32_t>(value); }},
      {"max_tokens", 0, -1, [](SamplingParams& p, float value) { p.max_tokens = static_cast<int32_t>(value); }},
      {"prompt_logprobs", 0, -1,
       [](SamplingParams& p, float value) { p.prompt_logprobs = static_cast<int32_t>(value); }},
      {"prompt_logprobs", 20, 21,
       [](SamplingParams& p, float value) { p.prompt_logprobs = static_cast<int32_t>(value); }},
      {"logprobs", 0, -1, logprobs},
      {"logprobs", 20, 21, logprobs},
      {"stop", 64, 65, stops},
      {"stop_ids", 256, 257, [](SamplingParams& p, float count) { p.stop_ids.assign(static_cast<size_t>(count), 1); }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.field, c.valid, c.invalid);
    SamplingParams params = Valid();
    c.set(params, c.valid);
    CHECK(Validate(params, kVocab).ok());
    c.set(params, c.invalid);
    const absl::Status status = Validate(params, kVocab);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()).find(c.field) != std::string::npos);
  }
}

TEST_CASE("Validate shows a float so that it differs from its limit") {
  const auto error = [](float DrawParams::*member, float value) {
    SamplingParams params = Valid();
    params.draw.*member = value;
    return std::string(Validate(params, kVocab).message());
  };
  CHECK(error(&DrawParams::top_p, std::nextafter(1.0f, 2.0f)) ==
        "sampling.top_p: expected a number in [0, 1], got 1.0000001");
  CHECK(error(&DrawParams::min_p, 1) == "sampling.min_p: expected a number in [0, 1), got 1");
  CHECK(error(&DrawParams::repetition_penalty, std::nextafter(0.01f, 0.0f)) ==
        "sampling.repetition_penalty: expected a number in [0.01, 100], got 0.009999999");
  CHECK(error(&DrawParams::temperature, -1e-30f) == "sampling.temperature: expected a number in [0, 100], got -1e-30");
}

const SamplingField& FieldNamed(std::string_view name) {
  for (const SamplingField& field : SamplingFields()) {
    if (field.name == name) return field;
  }
  FAIL("no field " << name);
  return SamplingFields().front();
}

TEST_CASE("ToFloat checks a number with all its digits") {
  struct Case {
    const char* field;
    double number;
    std::optional<float> value;  // nothing: refused
    const char* error = "";
  };
  const Case cases[] = {
      {"top_p", 1.0000001, {}, "top_p: expected a number in [0, 1], got 1.0000001"},
      {"top_p", 1.00000000001, {}, "top_p: expected a number in [0, 1], got 1.00000000001"},
      {"top_p", -1e-50, {}, "top_p: expected a number in [0, 1], got -1e-50"},
      {"top_p", 1e-50, 0.0f},
      {"top_p", 0.99999999999, 1.0f},
      {"min_p", 0.99999999999, std::nextafter(1.0f, 0.0f)},
      {"min_p", 1, {}, "min_p: expected a number in [0, 1), got 1"},
      {"min_p", -1e-50, {}, "min_p: expected a number in [0, 1), got -1e-50"},
      {"repetition_penalty", 0.01, 0.01f},
      {"repetition_penalty",
       0.00999999999,
       {},
       "repetition_penalty: expected a number in [0.01, 100], got 0.00999999999"},
      {"temperature", 100.000000001, {}, "temperature: expected a number in [0, 100], got 100.000000001"},
      {"temperature", 1e300, {}, "temperature: expected a number in [0, 100], got 1e+300"},
      {"presence_penalty", -2.000000001, {}, "presence_penalty: expected a number in [-2, 2], got -2.000000001"},
      {"frequency_penalty", 2.000000001, {}, "frequency_penalty: expected a number in [-2, 2], got 2.000000001"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.field, c.number);
    const absl::StatusOr<float> value = ToFloat(FieldNamed(c.field), c.field, c.number);
    CHECK(value.ok() == c.value.has_value());
    if (value.ok()) CHECK(*value == c.value);
    CHECK(std::string(value.status().message()) == c.error);
  }
}

TEST_CASE("Each number in the range of a float parameter becomes a valid float") {
  for (const SamplingField& field : SamplingFields()) {
    if (!std::holds_alternative<float DrawParams::*>(field.member)) continue;
    const double low = field.range.low, high = field.range.high;
    for (const double number : {low, std::nextafter(low, high), low + (high - low) / 3, std::nextafter(high, low)}) {
      const absl::StatusOr<float> value = ToFloat(field, field.name, number);
      REQUIRE(value.ok());
      SamplingParams params = Valid();
      VisitValue(params, field, [&](auto& member) {
        if constexpr (std::is_same_v<decltype(member), float&>) member = *value;
      });
      CHECK(Validate(params, kVocab).ok());
    }
    CHECK_FALSE(ToFloat(field, field.name, std::nextafter(low, low - 1)).ok());
    CHECK_FALSE(ToFloat(field, field.name, std::nextafter(high, high + 1)).ok());
  }
}

TEST_CASE("Unset sampling parameters filter, penalise and stop nothing") {
  const SamplingParams params;
  CHECK(params.draw.temperature == 1);
  CHECK(params.draw.top_k == 0);
  CHECK(params.draw.top_p == 1);
  CHECK(params.draw.min_p == 0);
  CHECK(params.draw.repetition_penalty == 1);
  CHECK(params.draw.presence_penalty == 0);
  CHECK(params.draw.frequency_penalty == 0);
  CHECK_FALSE(params.seed.has_value());
  CHECK(params.stop.empty());
  CHECK(params.stop_ids.empty());
  CHECK_FALSE(params.ignore_eos);
  CHECK_FALSE(params.logprobs.has_value());
}

}  // namespace
}  // namespace baton
