// Usage in each event of a stream, and ids of tokens in answers.
#include <array>
#include <string>
#include <vector>

#include "base/json/json_body.h"
#include "base/strings.h"
#include "catch.h"
#include "frontend/openai/answer_calls.h"

namespace baton {
namespace {

TokenUpdate IdsUpdate(const std::vector<TokenId>& ids, const std::string& text) {
  TokenUpdate update;
  update.tokens = ids;
  update.text = text;
  return update;
}

RequestOutcome UsageOutcome(int32_t prompt, int32_t completion) {
  RequestOutcome outcome;
  outcome.finish = FinishReason::kLength;
  outcome.prompt_tokens = prompt;
  outcome.completion_tokens = completion;
  return outcome;
}

// Returns the events of a stream, without the last one, "[DONE]".
std::vector<Json> EventsOf(const std::string& stream) {
  std::vector<Json> events;
  for (size_t at = 0; stream.substr(at) != "data: [DONE]\n\n";) {
    const size_t end = stream.find("\n\n", at);
    REQUIRE(end != std::string::npos);
    events.push_back(*ParseJsonBody(stream.substr(at + 6, end - at - 6)));
    at = end + 2;
  }
  return events;
}

constexpr std::array<TokenId, 4> kPrompt = {1, 2, 3, 4};

TEST_CASE("Each event of a stream has the usage so far if the call asks for it") {
  for (const bool chat : {false, true}) {
    CompletionCall call = AnswerCall(chat, /*stream=*/true);
    call.include_usage = call.continuous_usage = true;
    CompletionWriter writer = AnswerWriter(call);
    writer.SetPrompt(0, kPrompt);
    std::string out;
    writer.Update(0, IdsUpdate({104}, "h"), out);
    writer.Update(0, IdsUpdate({105, 33}, "i!"), out);
    writer.End(0, UsageOutcome(4, 3), out);
    std::vector<std::string> usages;
    for (const Json& event : EventsOf(out)) usages.push_back(event["usage"].dump());
    std::vector<std::string> expected = {R"({"prompt_tokens":4,"completion_tokens":1,"total_tokens":5})",
                                         R"({"prompt_tokens":4,"completion_tokens":3,"total_tokens":7})",
                                         R"({"prompt_tokens":4,"completion_tokens":3,"total_tokens":7})",
                                         R"({"prompt_tokens":4,"completion_tokens":3,"total_tokens":7,)"
                                         R"("prompt_tokens_details":{"cached_tokens":0}})"};
    if (chat) expected.insert(expected.begin(), R"({"prompt_tokens":4,"completion_tokens":0,"total_tokens":4})");
    CHECK(usages == expected);
  }
}

TEST_CASE("The usage in an event is that of its choice") {
  CompletionCall call = AnswerCall(/*chat=*/false, /*stream=*/true, 2);
  call.include_usage = call.continuous_usage = true;
  CompletionWriter writer = AnswerWriter(call);
  writer.SetPrompt(0, kPrompt);
  std::string out;
  writer.Update(0, IdsUpdate({104}, "h"), out);
  writer.Update(1, IdsUpdate({104, 105}, "hi"), out);
  writer.End(1, UsageOutcome(9, 2), out);
  writer.End(0, UsageOutcome(4, 1), out);
  const std::vector<Json> events = EventsOf(out);
  REQUIRE(events.size() == 5);
  CHECK(events[0]["usage"]["total_tokens"] == 5);
  // The second prompt has references. Its length is known at the end.
  CHECK(events[1]["usage"]["total_tokens"] == 2);
  CHECK(events[2]["usage"]["total_tokens"] == 11);
  CHECK(events[4]["usage"]["total_tokens"] == 16);
}

TEST_CASE("A completion has the ids of its tokens if the call asks for them") {
  CompletionCall call = AnswerCall(/*chat=*/false, /*stream=*/false, 2);
  call.return_token_ids = true;
  CompletionWriter writer = AnswerWriter(call);
  writer.SetPrompt(0, kPrompt);
  std::string out;
  writer.Update(0, IdsUpdate({104}, "h"), out);
  writer.Update(0, IdsUpdate({105}, "i"), out);
  writer.End(0, UsageOutcome(4, 2), out);
  writer.End(1, UsageOutcome(9, 0), out);
  const Json body = *ParseJsonBody(writer.Body());
  CHECK(body["choices"][0]["prompt_token_ids"].dump() == "[1,2,3,4]");
  CHECK(body["choices"][0]["token_ids"].dump() == "[104,105]");
  CHECK(body["choices"][1]["prompt_token_ids"].is_null());
  CHECK(body["choices"][1]["token_ids"].dump() == "[]");
  CHECK_FALSE(body.contains("prompt_token_ids"));
}

TEST_CASE("A chat has the ids of its prompt once, and each choice those of its output") {
  CompletionCall call = AnswerCall(/*chat=*/true, /*stream=*/false);
  call.return_token_ids = true;
  CompletionWriter writer = AnswerWriter(call);
  writer.SetPrompt(0, kPrompt);
  std::string out;
  writer.Update(0, IdsUpdate({104}, "h"), out);
  writer.End(0, UsageOutcome(4, 1), out);
  const Json body = *ParseJsonBody(writer.Body());
  CHECK(body["prompt_token_ids"].dump() == "[1,2,3,4]");
  CHECK(body["choices"][0]["token_ids"].dump() == "[104]");
  CHECK_FALSE(body["choices"][0].contains("prompt_token_ids"));
}

TEST_CASE("The events of a stream together have each id once") {
  for (const bool chat : {false, true}) {
    CompletionCall call = AnswerCall(chat, /*stream=*/true);
    call.return_token_ids = true;
    CompletionWriter writer = AnswerWriter(call);
    writer.SetPrompt(0, kPrompt);
    std::string out;
    writer.Update(0, IdsUpdate({0xc3}, ""), out);  // held back
    writer.Update(0, IdsUpdate({0xa9}, "\u00e9"), out);
    writer.Update(0, IdsUpdate({33}, ""), out);
    writer.End(0, UsageOutcome(4, 3), out);
    std::vector<std::string> ids;
    size_t prompts = 0;
    for (const Json& event : EventsOf(out)) {
      const Json& owner = chat ? event : event["choices"][0];
      if (owner.contains("prompt_token_ids")) {
        ++prompts;
        CHECK(ids.empty());
        CHECK(owner["prompt_token_ids"].dump() == "[1,2,3,4]");
      }
      ids.push_back(event["choices"][0]["token_ids"].dump());
    }
    CHECK(prompts == 1);
    std::vector<std::string> expected = {"[195,169]", "[33]"};
    if (chat) expected.insert(expected.begin(), "[]");
    CHECK(ids == expected);
  }
}

TEST_CASE("Log probabilities name tokens by their ids if the call asks for it") {
  for (const bool chat : {false, true}) {
    CompletionCall call = AnswerCall(chat, /*stream=*/false);
    call.logprobs = 1;
    call.tokens_as_ids = true;
    CompletionWriter writer = AnswerWriter(call);
    TokenUpdate update = IdsUpdate({0xc3}, "");
    update.logprobs = {{.logprob = -0.5F, .top = {{'x', -0.25F}}}};
    std::string out;
    writer.Update(0, update, out);
    writer.End(0, UsageOutcome(4, 1), out);
    const Json body = *ParseJsonBody(writer.Body());
    CHECK(body["choices"][0]["logprobs"].dump() ==
          (chat ? R"({"content":[{"token":"token_id:195","logprob":-0.5,"bytes":[195],"top_logprobs":[{"token":)"
                  R"("token_id:120","logprob":-0.25,"bytes":[120]}]}],"refusal":null})"
                : R"({"tokens":["token_id:195"],"token_logprobs":[-0.5],"top_logprobs":[{"token_id:195":-0.5,)"
                  R"("token_id:120":-0.25}],"text_offset":[0]})"));
  }
}

}  // namespace
}  // namespace baton
