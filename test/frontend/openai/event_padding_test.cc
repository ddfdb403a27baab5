#include "frontend/openai/event_padding.h"

#include <set>
#include <string>

#include "base/json/json_body.h"
#include "base/strings.h"
#include "catch.h"
#include "frontend/openai/answer_calls.h"
#include "frontend/openai/answer_text.h"
#include "frontend/openai/json_text.h"

namespace baton {
namespace {

// Texts that are as short as tokens, and one that is longer than a unit.
const std::string kTexts[] = {"a", " the", "\"quoted\"", std::string(30, 'x'), std::string(100, 'y')};

std::string StreamOf(CompletionCall call, bool obfuscate) {
  call.obfuscate = obfuscate;
  CompletionWriter writer = AnswerWriter(call);
  std::string out;
  for (const std::string& text : kTexts) writer.Update(0, Text(text, call.logprobs.has_value()), out);
  RequestOutcome outcome;
  outcome.finish = FinishReason::kStop;
  writer.End(0, outcome, out);
  return out;
}

TEST_CASE("Padded events of short texts have one size, and otherwise the same members") {
  for (const bool chat : {false, true}) {
    for (const bool usage : {false, true}) {
      CompletionCall call = AnswerCall(chat, /*stream=*/true);
      call.include_usage = usage;
      std::string plain = StreamOf(call, false), padded = StreamOf(call, true);
      std::set<size_t> sizes, long_sizes;
      std::set<std::string> paddings;
      while (!padded.starts_with("data: [DONE]")) {
        const size_t end = plain.find(kEventEnd), padded_end = padded.find(kEventEnd);
        Json event = *ParseJsonBody(padded.substr(kData.size(), padded_end - kData.size()));
        const bool pads = !event["choices"].empty();  // not the last usage
        REQUIRE(event.contains("obfuscation") == pads);
        if (pads) {
          paddings.insert(event["obfuscation"].get<std::string>());
          (event.dump().find("yyy") == std::string::npos ? sizes : long_sizes).insert(padded_end);
        }
        event.erase("obfuscation");
        CHECK(event.dump() == plain.substr(kData.size(), end - kData.size()));
        plain.erase(0, end + kEventEnd.size());
        padded.erase(0, padded_end + kEventEnd.size());
      }
      CHECK(plain == padded);
      CHECK(sizes.size() == 1);
      REQUIRE(long_sizes.size() == 1);
      CHECK(*long_sizes.begin() == *sizes.begin() + EventPadding::kUnit);
      CHECK(paddings.size() > 4);
      CHECK_FALSE(paddings.contains(""));
    }
  }
}

TEST_CASE("Padded sizes of events with log probabilities differ by whole units") {
  CompletionCall call = AnswerCall(/*chat=*/true, /*stream=*/true);
  call.logprobs = 0;
  std::string padded = StreamOf(call, true);
  const size_t first = padded.find(kEventEnd);
  while (!padded.starts_with("data: [DONE]")) {
    const size_t end = padded.find(kEventEnd);
    CHECK((end - first) % EventPadding::kUnit == 0);
    CHECK(end >= first);
    padded.erase(0, end + kEventEnd.size());
  }
}

}  // namespace
}  // namespace baton
