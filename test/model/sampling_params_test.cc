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

TEST_CASE("ordinary sampling parameters and those at their limits are valid") {
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

TEST_CASE("what is out of range is refused with the field's name") {
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

}  // namespace
}  // namespace baton
