// The chunks of a stream have the same content as one body, however the workers split the answer
// into updates.
#include <map>
#include <random>

#include "base/json/json_body.h"
#include "base/strings.h"
#include "catch.h"
#include "frontend/openai/completion_writer.h"
#include "frontend/openai/joined_deltas.h"
#include "frontend/openai/openai_model.h"
#include "frontend/openai/random_answer.h"
#include "seeds.h"

namespace baton {
namespace {

// The choices of an answer, as a body has them.
struct Choice {
  std::string text, calls, finish_reason;
  Json legacy;  // the call of the older form
  // For a chat, the content; for a completion, the four lists.
  std::map<std::string, Json> logprobs;
  bool operator==(const Choice&) const = default;
};

void AddLogprobs(const Json& logprobs, Choice& choice) {
  if (logprobs.is_null()) return;
  for (const auto& [name, list] : logprobs.items()) {
    if (list.is_null()) continue;
    for (const Json& element : list) choice.logprobs[name].push_back(element);
  }
}

void AddCall(const Json& call, Choice& choice) { choice.calls += StrCat(call["id"].dump(), call["function"].dump()); }

std::vector<Choice> FromStream(std::string_view stream, size_t count) {
  std::vector<Choice> choices(count);
  std::vector<Json> messages(count, Json::object());
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    REQUIRE(end != std::string_view::npos);
    const std::string_view event = stream.substr(0, end);
    stream.remove_prefix(end + 2);
    if (event == "data: [DONE]") break;
    REQUIRE(event.starts_with("data: "));
    const auto chunk = ParseJsonBody(event.substr(6));
    INFO(chunk.status());
    REQUIRE(chunk.ok());
    for (const Json& part : (*chunk)["choices"]) {
      Choice& choice = choices.at(part["index"].get<size_t>());
      REQUIRE(choice.finish_reason.empty());
      if (part.contains("text")) choice.text += part["text"].get<std::string>();
      if (part.contains("delta")) JoinDelta(messages.at(part["index"].get<size_t>()), part["delta"]);
      AddLogprobs(part["logprobs"], choice);
      if (part["finish_reason"].is_string()) choice.finish_reason = part["finish_reason"].get<std::string>();
    }
  }
  CHECK(stream.empty());
  for (size_t i = 0; i < count; ++i) {
    choices[i].text += messages[i].value("content", "");
    for (const Json& call : messages[i].value("tool_calls", Json::array())) AddCall(call, choices[i]);
    choices[i].legacy = messages[i].value("function_call", Json());
  }
  return choices;
}

std::vector<Choice> FromBody(const std::string& text) {
  const auto body = ParseJsonBody(text);
  INFO(body.status());
  REQUIRE(body.ok());
  std::vector<Choice> choices;
  for (const Json& part : (*body)["choices"]) {
    Choice& choice = choices.emplace_back();
    if (part.contains("text")) choice.text = part["text"].get<std::string>();
    if (part.contains("message")) {
      const Json& message = part["message"];
      if (message["content"].is_string()) choice.text = message["content"].get<std::string>();
      for (const Json& call : message.value("tool_calls", Json::array())) AddCall(call, choice);
      choice.legacy = message.value("function_call", Json());
    }
    AddLogprobs(part["logprobs"], choice);
    choice.finish_reason = part["finish_reason"].get<std::string>();
  }
  return choices;
}

TEST_CASE("A stream has the content of a whole body") {
  ForEachSeed(300, [](uint64_t seed) {
    std::mt19937 random(seed);
    CompletionCall call;
    call.chat = random() % 3 > 0;
    call.requests.resize(1);
    call.samples = static_cast<int32_t>(random() % 3 + 1);
    call.include_usage = random() % 2 == 0;
    if (random() % 3 == 0) call.logprobs = 1;
    if (!call.chat && !call.logprobs && random() % 2 == 0) call.echo = {"prompt é"};
    constexpr ToolFormat kFormats[] = {ToolFormat::kNone, ToolFormat::kHermes, ToolFormat::kLlama};
    if (call.chat) call.tools = kFormats[random() % 3];
    call.tool_names = {"f"};
    call.one_tool_call = random() % 3 == 0;
    call.legacy_calls = call.one_tool_call && random() % 2 == 0;
    const std::vector<std::string> stops = RandomStops(random);
    call.requests[0].mutable_sampling()->mutable_stop()->Add(stops.begin(), stops.end());
    const auto min_tokens = static_cast<int32_t>(random() % 3 == 0 ? random() % 10 : 0);
    call.requests[0].mutable_sampling()->set_min_tokens(min_tokens);
    CompletionCall streamed = call;
    streamed.stream = true;

    const ServedModel& model = **TestModels().Find("llama");
    CompletionWriter body(call, model, "1", absl::UnixEpoch());
    CompletionWriter stream(streamed, model, "1", absl::UnixEpoch());
    std::string out, none;
    for (size_t i = 0; i < call.choices(); ++i) {
      const std::vector<TokenId> tokens = RandomTokens(random);
      for (const TokenUpdate& update : Updates(tokens, stops, call.logprobs.has_value(), random, min_tokens))
        stream.Update(i, update, out);
      for (const TokenUpdate& update : Updates(tokens, stops, call.logprobs.has_value(), random, min_tokens))
        body.Update(i, update, none);
      RequestOutcome outcome;
      outcome.finish = random() % 2 == 0 ? FinishReason::kStop : FinishReason::kLength;
      stream.End(i, outcome, out);
      body.End(i, outcome, none);
    }
    CHECK(none.empty());
    CHECK(out.ends_with("data: [DONE]\n\n"));
    const std::vector<Choice> streamed_choices = FromStream(out, call.choices());
    const std::vector<Choice> body_choices = FromBody(body.Body());
    REQUIRE(streamed_choices.size() == body_choices.size());
    for (size_t i = 0; i < body_choices.size(); ++i) {
      CHECK(streamed_choices[i].text == body_choices[i].text);
      CHECK(streamed_choices[i].calls == body_choices[i].calls);
      CHECK(streamed_choices[i].legacy == body_choices[i].legacy);
      CHECK(streamed_choices[i].finish_reason == body_choices[i].finish_reason);
      CHECK(streamed_choices[i].logprobs == body_choices[i].logprobs);
    }
  });
}

}  // namespace
}  // namespace baton
