// Tests of the sampling flags, which follow the table of sampling parameters.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "catch.h"
#include "cli/cli.h"

namespace baton {
namespace {

// Returns the sampling fields that `baton chat` sends with these flags. Throws the parser's error.
v1::Sampling Sent(std::vector<std::string> args) {
  CLI::App app;
  ClientOptions options;
  AddChatFlags(app, options);
  std::ranges::reverse(args);  // CLI11 takes the last one first
  app.parse(args);
  return SamplingFrom(options);
}

TEST_CASE("A sampling flag sets its parameter and leaves the others unset") {
  CHECK(Sent({}).ByteSizeLong() == 0);
  v1::Sampling expected;
  expected.set_temperature(0);
  CHECK(Sent({"--temperature", "0"}).SerializeAsString() == expected.SerializeAsString());

  const v1::Sampling all = Sent({"--top-k",
                                 "40",
                                 "--min-p",
                                 "0.25",
                                 "--seed",
                                 "18446744073709551615",
                                 "--max-tokens",
                                 "0",
                                 "--ignore-eos",
                                 "--stop",
                                 "a",
                                 "--stop",
                                 "b,c",
                                 "--stop-ids",
                                 "7",
                                 "--stop-ids",
                                 "9",
                                 "--frequency-penalty",
                                 "-0.5",
                                 "--top-p",
                                 "0.5",
                                 "--repetition-penalty",
                                 "1.5",
                                 "--presence-penalty",
                                 "0.25",
                                 "--logit-bias",
                                 "7:-100",
                                 "--logit-bias",
                                 "9:0.5",
                                 "--min-tokens",
                                 "3",
                                 "--allowed-token-ids",
                                 "4",
                                 "--bad-words",
                                 "no",
                                 "--thinking-token-budget",
                                 "0"});
  CHECK(all.top_k() == 40);
  CHECK(all.min_p() == 0.25f);
  CHECK(all.seed() == ~0ull);
  CHECK(all.has_max_tokens());
  CHECK(all.ignore_eos());
  CHECK(std::vector<std::string>(all.stop().begin(), all.stop().end()) == std::vector<std::string>{"a", "b,c"});
  CHECK(std::vector<int>(all.stop_ids().begin(), all.stop_ids().end()) == std::vector<int>{7, 9});
  CHECK(all.frequency_penalty() == -0.5f);
  CHECK(all.top_p() == 0.5f);
  CHECK(all.repetition_penalty() == 1.5f);
  CHECK(all.presence_penalty() == 0.25f);
  REQUIRE(all.logit_bias_size() == 2);
  CHECK(all.logit_bias(0).ShortDebugString() == "id: 7 bias: -100");
  CHECK(all.logit_bias(1).ShortDebugString() == "id: 9 bias: 0.5");
  CHECK(all.min_tokens() == 3);
  CHECK(all.allowed_token_ids(0) == 4);
  CHECK(all.bad_words(0) == "no");
  CHECK(all.has_thinking_token_budget());
  CHECK_FALSE(all.has_temperature());
  CHECK_FALSE(all.has_logprobs());
}

TEST_CASE("A sampling flag refuses a value of another type") {
  for (const char* flag : {"--temperature", "--top-k", "--seed", "--stop-ids", "--logit-bias", "--min-tokens"}) {
    CHECK_THROWS_AS(Sent({flag, "x"}), CLI::ParseError);
  }
  for (const char* bias : {"7", "7:", ":1", "7:x", "7.5:1"})
    CHECK_THROWS_AS(Sent({"--logit-bias", bias}), CLI::ParseError);
  CHECK_THROWS_AS(Sent({"--seed", "-1"}), CLI::ParseError);
}

TEST_CASE("A sampling flag checks and shows a float as it was given") {
  const auto error = [](const std::string& flag, const std::string& number) -> std::string {
    try {
      Sent({flag, number});
    } catch (const CLI::ValidationError& refused) {
      return refused.what();
    }
    return "";
  };
  CHECK(error("--top-p", "1.0000001") == "--top-p: expected a number in [0, 1], got 1.0000001");
  CHECK(error("--top-p", "1.00000001") == "--top-p: expected a number in [0, 1], got 1.00000001");
  CHECK(error("--top-p", "-1e-50") == "--top-p: expected a number in [0, 1], got -1e-50");
  CHECK(error("--min-p", "1") == "--min-p: expected a number in [0, 1), got 1");
  CHECK(error("--temperature", "1e300") == "--temperature: expected a number in [0, 100], got 1e+300");
  CHECK(error("--repetition-penalty", "nan") == "--repetition-penalty: expected a number in [0.01, 100], got nan");
  CHECK(Sent({"--min-p", "0.99999999999"}).min_p() == std::nextafter(1.0f, 0.0f));
  for (const char* zero : {"0", "1e-50"}) {
    const v1::Sampling sent = Sent({"--top-p", zero});
    CHECK(sent.has_top_p());
    CHECK(sent.top_p() == 0);
  }
}

}  // namespace
}  // namespace baton
