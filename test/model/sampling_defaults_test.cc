#include "model/sampling_defaults.h"

#include "base/strings.h"
#include "catch.h"
#include "temp_dir.h"

namespace baton {
namespace {

absl::StatusOr<SamplingParams> LoadDefaults(const std::string& generation_config) {
  const TempDir dir;
  dir.Write("generation_config.json", generation_config);
  return LoadSamplingDefaults(dir.path());
}

TEST_CASE("LoadSamplingDefaults reads generation_config.json") {
  const auto params =
      LoadDefaults(R"({"do_sample": true, "temperature": 0.5, "top_k": 20, "top_p": 0.25, "min_p": 0.125,
                               "repetition_penalty": 1.5, "eos_token_id": [1, 2]})");
  REQUIRE(params.ok());
  CHECK(params->draw.temperature == 0.5f);
  CHECK(params->draw.top_k == 20);
  CHECK(params->draw.top_p == 0.25f);
  CHECK(params->draw.min_p == 0.125f);
  CHECK(params->draw.repetition_penalty == 1.5f);
}

TEST_CASE("LoadSamplingDefaults keeps the defaults for absent or disabled fields") {
  for (const char* file : {"{}", R"({"temperature": null, "top_k": -1})", R"({"top_k": 0})"}) {
    const auto params = LoadDefaults(file);
    REQUIRE(params.ok());
    CHECK(params->draw.temperature == 1);
    CHECK(params->draw.top_k == 0);
    CHECK(params->draw.top_p == 1);
    CHECK(params->draw.repetition_penalty == 1);
  }
  CHECK(LoadSamplingDefaults("/nonexistent").ok());
}

TEST_CASE("LoadSamplingDefaults ignores fields that only a request may set") {
  const auto params = LoadDefaults(R"({"presence_penalty": 1, "frequency_penalty": 1, "max_tokens": 5, "seed": 3,
                                       "logprobs": 2, "ignore_eos": true, "stop": ["a"], "stop_ids": [1]})");
  REQUIRE(params.ok());
  CHECK(params->draw.presence_penalty == 0);
  CHECK(params->draw.frequency_penalty == 0);
  CHECK(params->max_tokens == 0);
  CHECK_FALSE(params->seed.has_value());
  CHECK_FALSE(params->logprobs.has_value());
  CHECK_FALSE(params->ignore_eos);
  CHECK(params->stop.empty());
  CHECK(params->stop_ids.empty());
}

TEST_CASE("LoadSamplingDefaults refuses an invalid default with file, field and limit") {
  const auto error = [](const std::string& file) {
    const auto params = LoadDefaults(file);
    CHECK(absl::IsInvalidArgument(params.status()));
    const std::string message(Message(params.status()));
    CHECK(message.find("generation_config.json: ") != std::string::npos);
    return message.substr(message.find(".json: ") + 7);
  };
  CHECK(error(R"({"temperature": -1})") == "temperature: expected a number in [0, 100], got -1");
  CHECK(error(R"({"top_p": 1.00000001})") == "top_p: expected a number in [0, 1], got 1.00000001");
  CHECK(error(R"({"top_p": "0.9"})") == "top_p: expected a number, got string");
  CHECK(error(R"({"top_k": 1e300})").starts_with("top_k: expected [-1, "));
  CHECK(error(R"({"top_k": -2})").starts_with("top_k: expected [-1, "));
  CHECK(error("[]").find("expected a JSON object") != std::string::npos);
}

}  // namespace
}  // namespace baton
