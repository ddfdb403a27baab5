// Answers of this server render to the same tokens in a later call, however a client collects them
// and whatever it adds.
#include <random>
#include <string>
#include <vector>

#include "base/strings.h"
#include "catch.h"
#include "frontend/openai/chat_reader.h"
#include "frontend/openai/completion_writer.h"
#include "frontend/openai/joined_deltas.h"
#include "frontend/openai/openai_model.h"
#include "frontend/openai/random_answer.h"
#include "frontend/prompt_reader.h"
#include "seeds.h"

namespace baton {
namespace {

// Shows everything that a template may see of a message, and has a form for results.
constexpr char kShowAll[] =
    "{% if tools %}<tool_call>{{ tools | tojson }}{% endif %}{% for m in messages %}"
    "<{{ m | tojson }}{% if m.role == 'tool' %}!{% endif %}>{% endfor %}";

const ServedModels& ShowAllModels() {
  static const ServedModels* models = [] {
    std::vector<ServedModel> list;
    list.push_back(MarkedModel("all", StrCat(kShowAll, "{# tool_calls <think></think> #}").c_str()));
    list[0].context = 1 << 20;
    return new ServedModels(std::move(list));
  }();
  return *models;
}

// An answer as the messages that clients make of it.
struct CollectedAnswer {
  Json whole;     // from a body
  Json streamed;  // from the deltas of a stream
  Json plain;     // only what the model sees
};

// Adds members that clients write into their copies of answers.
void Decorate(Json& message, std::mt19937& random) {
  const auto maybe = [&](const char* member) {
    if (random() % 3 > 0) return;
    const Json object = Json::parse(member);
    if (!message.contains(object.begin().key())) message.update(object);
  };
  maybe(R"({"annotations": []})");
  maybe(R"({"audio": null})");
  maybe(R"({"function_call": null})");
  maybe(R"({"tool_calls": null})");
  maybe(R"({"parsed": null})");
  maybe(R"({"refusal": null})");
  maybe(R"({"reasoning_content": null})");
  maybe(R"({"provider_specific_fields": {"refusal": null}})");
  if (!message.contains("tool_calls") || message["tool_calls"].is_null()) return;
  for (Json& call : message["tool_calls"]) {
    if (random() % 2 == 0) call["index"] = random() % 3;
    if (random() % 2 == 0) call["function"]["parsed_arguments"] = Json::parse(R"({"x": 1})");
  }
  if (message["content"] == "" && random() % 2 == 0) message["content"] = nullptr;
}

Json Plain(const Json& message) {
  Json plain = {{"role", "assistant"}, {"content", message["content"].is_null() ? Json("") : message["content"]}};
  if (message.contains("reasoning_content")) plain["reasoning_content"] = message["reasoning_content"];
  if (message.contains("tool_calls")) plain["tool_calls"] = message["tool_calls"];
  if (message.contains("function_call")) {
    plain["tool_calls"].push_back({{"type", "function"}, {"function", message["function_call"]}});
  }
  return plain;
}

CollectedAnswer RandomCollected(std::mt19937& random) {
  const ServedModel& model = **ShowAllModels().Find("all");
  CompletionCall call;
  call.chat = true;
  call.requests.resize(1);
  constexpr ToolFormat kFormats[] = {ToolFormat::kNone, ToolFormat::kHermes, ToolFormat::kLlama};
  call.tools = kFormats[random() % 3];
  call.tool_names = {"f", "no name"};
  call.include_usage = random() % 2 == 0;
  call.one_tool_call = call.legacy_calls = random() % 4 == 0;
  CompletionCall streamed = call;
  streamed.stream = true;
  CompletionWriter body(call, model, "1", absl::UnixEpoch()), stream(streamed, model, "1", absl::UnixEpoch());
  constexpr Thinking kThinking[] = {Thinking::kNone, Thinking::kMay, Thinking::kBegun};
  const Thinking thinking = kThinking[random() % 3];
  body.SetThinking(thinking);
  stream.SetThinking(thinking);
  const std::vector<TokenId> tokens = RandomTokens(random);
  std::string out, none;
  for (const TokenUpdate& update : Updates(tokens, {}, false, random)) stream.Update(0, update, out);
  for (const TokenUpdate& update : Updates(tokens, {}, false, random)) body.Update(0, update, none);
  RequestOutcome outcome;
  outcome.finish = FinishReason::kStop;
  stream.End(0, outcome, out);
  body.End(0, outcome, none);
  CollectedAnswer answer{
      .whole = Json::parse(body.Body())["choices"][0]["message"], .streamed = JoinStream(out), .plain = {}};
  answer.plain = Plain(answer.whole);
  return answer;
}

std::vector<TokenId> TokensOf(const Json& messages) {
  const auto call = ReadChat({{"messages", messages}}, ShowAllModels());
  INFO(call.status() << " " << messages.dump());
  REQUIRE(call.ok());
  const auto tokens =
      ChatTokens(call->requests[0].chat(), *call->model, absl::UnixEpoch(), OpenAiPaths(), &call->values);
  INFO(tokens.status());
  REQUIRE(tokens.ok());
  return *tokens;
}

TEST_CASE("Answers are taken back and render to the same tokens") {
  ForEachSeed(300, [](uint64_t seed) {
    std::mt19937 random(seed);
    Json whole = Json::array(), streamed = Json::array(), plain = Json::array();
    const auto add = [&](const Json& message) {
      for (Json* list : {&whole, &streamed, &plain}) list->push_back(message);
    };
    for (uint32_t turns = random() % 4 + 1; turns > 0; --turns) {
      add({{"role", "user"}, {"content", "next"}});
      CollectedAnswer answer = RandomCollected(random);
      Decorate(answer.whole, random);
      Decorate(answer.streamed, random);
      whole.push_back(answer.whole);
      streamed.push_back(answer.streamed);
      plain.push_back(answer.plain);
      for (const Json& call : answer.plain.value("tool_calls", Json::array())) {
        if (call.contains("id")) {
          add({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "done"}});
        } else {
          add({{"role", "function"}, {"name", "f"}, {"content", "done"}});
        }
      }
      // A server with refusals sends them instead of text.
      if (random() % 4 > 0) continue;
      whole.push_back({{"role", "assistant"}, {"content", nullptr}, {"refusal", "no"}});
      streamed.push_back({{"role", "assistant"}, {"content", ""}, {"refusal", "no"}});
      plain.push_back({{"role", "assistant"}, {"content", "no"}});
    }
    const std::vector<TokenId> expected = TokensOf(plain);
    CHECK(TokensOf(whole) == expected);
    CHECK(TokensOf(streamed) == expected);
  });
}

}  // namespace
}  // namespace baton
