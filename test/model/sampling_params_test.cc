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
      {"top_p", [&](auto& p) { p.draw.top_p = 0; }},
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
      {"max_tokens", [&](auto& p) { p.max_tokens = 0; }},
      {"max_tokens", [&](auto& p) { p.max_tokens = -5; }},
      {"logprobs", [&](auto& p) { p.logprobs = 21; }},
      {"logprobs", [&](auto& p) { p.logprobs = -1; }},
      {"stop is 1000000 strings", [&](auto& p) { p.stop.assign(1000000, "x"); }},
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
      {"stop_ids is 257 ids", [&](auto& p) { p.stop_ids.assign(257, 1); }},
      {"stop_ids[1]",
       [&](auto& p) {
         p.stop_ids = {1, 100};
       }},
      {"stop_ids[0]", [&](auto& p) { p.stop_ids = {-1}; }},
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
      {"top_p", 0.001f, 0, top_p},
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
      {"max_tokens", 1, 0, [](SamplingParams& p, float value) { p.max_tokens = static_cast<int32_t>(value); }},
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
