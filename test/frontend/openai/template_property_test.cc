// Answers in a history render to the tokens that the model wrote, for templates of several forms.
#include <random>
#include <string>
#include <vector>

#include "base/strings.h"
#include "catch.h"
#include "frontend/openai/answer_text.h"
#include "frontend/openai/chat_reader.h"
#include "frontend/openai/completion_writer.h"
#include "frontend/openai/joined_deltas.h"
#include "frontend/openai/openai_model.h"
#include "frontend/prompt_reader.h"
#include "frontend/tools/random_calls.h"
#include "model/thinking.h"
#include "seeds.h"
#include "text/chat_templates.h"

namespace baton {
namespace {

constexpr char kTwoTools[] =
    R"([{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}])";

// A template, and the form of its model's answers.
struct Form {
  const char* name;
  const char* source;
  const char* end;  // of an answer
  bool text_beside_calls = true;
  bool several_calls = true;
  bool thinks = false;
};

constexpr Form kForms[] = {
    {.name = "qwen", .source = kQwenChat, .end = "<|im_end|>\n", .thinks = true},
    {.name = "llama", .source = kLlamaChat, .end = "<|eot|>", .text_beside_calls = false, .several_calls = false},
    {.name = "hermes", .source = kHermesChat, .end = "<|im_end|>\n", .text_beside_calls = false},
    {.name = "plain", .source = kPlainChat, .end = "<|im_end|>\n"},
    {.name = "strict", .source = kStrictChat, .end = ""},
};

const ServedModels& FormModels() {
  static const ServedModels* models = [] {
    std::vector<ServedModel> list;
    for (const Form& form : kForms) {
      list.push_back(MarkedModel(form.name, form.source));
      list.back().context = 1 << 20;
    }
    return new ServedModels(std::move(list));
  }();
  return *models;
}

// An answer, as a model of a form writes it.
struct Written {
  std::string text;
  std::vector<ToolCall> calls;
};

std::string CanonicalArguments(std::mt19937& random) {
  std::string text = RandomArguments(random);
  for (int i = 0; i < 2; ++i) text = *jinja::ToJson(jinja::Value::FromJson(Json::parse(text)), -1);
  return text;
}

Written RandomAnswer(const Form& form, std::mt19937& random) {
  static const std::vector<std::string> texts = {"Hm.", "é 𝄞", "a\n b", "{", "<tool", "\"x\": \\", "} {"};
  Written written;
  const std::string_view key = form.several_calls ? "arguments" : "parameters";
  for (uint32_t i = random() % 3; i > 0; --i) {
    written.calls.push_back({.name = random() % 2 == 0 ? "f" : "g", .arguments = CanonicalArguments(random)});
    if (!form.several_calls) break;
  }
  if (form.thinks && random() % 2 == 0) written.text = StrCat("<think>\n", Pick(texts, random), "\n</think>\n\n");
  if (written.calls.empty() || (form.text_beside_calls && random() % 2 == 0)) {
    written.text += Pick(texts, random);
    if (!written.calls.empty()) written.text += "\n";
  }
  for (size_t i = 0; i < written.calls.size(); ++i) {
    const ToolCall& call = written.calls[i];
    const std::string object = StrCat("{\"name\": \"", call.name, "\", \"", key, "\": ", call.arguments, "}");
    written.text += i > 0 ? "\n" : "";
    written.text += form.several_calls ? StrCat("<tool_call>\n", object, "\n</tool_call>") : object;
  }
  return written;
}

CompletionCall ReadForm(const Form& form, const Json& messages, bool generation_prompt) {
  auto call = ReadChat({{"model", form.name},
                        {"messages", messages},
                        {"tools", Json::parse(kTwoTools)},
                        {"add_generation_prompt", generation_prompt}},
                       FormModels());
  INFO(call.status() << " " << messages.dump());
  REQUIRE(call.ok());
  return *std::move(call);
}

std::string TextOfPrompt(const Form& form, const Json& messages, bool generation_prompt) {
  const CompletionCall call = ReadForm(form, messages, generation_prompt);
  const auto tokens = ChatTokens(call.requests[0].chat(), *call.model, absl::UnixEpoch(), OpenAiPaths(), &call.values);
  INFO(tokens.status() << " " << messages.dump());
  REQUIRE(tokens.ok());
  return {tokens->begin(), tokens->end()};
}

// Returns the message that a client receives.
Json Receive(const Form& form, const std::string& text, bool stream, std::mt19937& random) {
  CompletionCall call = ReadForm(form, Json::parse(R"([{"role": "user", "content": "x"}])"), true);
  call.stream = stream;
  CompletionWriter writer(call, *call.model, std::to_string(random()), absl::UnixEpoch());
  writer.SetThinking(ThinkingOf(*call.model, !call.values.tools.IsNone(), ""));
  std::string out;
  // Updates have whole characters.
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(at + random() % 20 + 1, text.size());
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    writer.Update(0, Text(text.substr(at, end - at)), out);
    at = end;
  }
  RequestOutcome outcome;
  outcome.finish = FinishReason::kStop;
  writer.End(0, outcome, out);
  if (!stream) return Json::parse(writer.Body())["choices"][0]["message"];
  return JoinStream(out);
}

// Appends the results of a message's calls.
void AddResults(const Json& message, Json& messages) {
  for (const Json& call : message.value("tool_calls", Json::array())) {
    messages.push_back(
        {{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", StrCat("of ", call["function"]["name"].dump())}});
  }
}

TEST_CASE("An answer in a history has the tokens that the model wrote") {
  ForEachSeed(200, [](uint64_t seed) {
    std::mt19937 random(seed);
    const Form& form = kForms[random() % std::size(kForms)];
    INFO(form.name);
    Json messages = Json::parse(R"([{"role": "user", "content": "go"}])");
    for (uint32_t turns = random() % 4 + 1; turns > 0; --turns) {
      const Written written = RandomAnswer(form, random);
      const std::string expected =
          StrCat(TextOfPrompt(form, messages, /*generation_prompt=*/true), written.text, form.end);
      for (const bool stream : {false, true}) {
        Json history = messages;
        history.push_back(Receive(form, written.text, stream, random));
        CHECK(history.back().value("tool_calls", Json::array()).size() == written.calls.size());
        CHECK(TextOfPrompt(form, history, /*generation_prompt=*/false) == expected);
      }
      messages.push_back(Receive(form, written.text, random() % 2 == 0, random));
      AddResults(messages.back(), messages);
      if (written.calls.empty()) messages.push_back({{"role", "user"}, {"content", "next"}});
    }
  });
}

TEST_CASE("Several calls of an answer render as a history with one call each") {
  ForEachSeed(100, [](uint64_t seed) {
    std::mt19937 random(seed);
    const Form& llama = kForms[1];
    std::string text;
    Json apart = Json::parse(R"([{"role": "user", "content": "go"}])");
    Json together = apart;
    for (uint32_t i = random() % 3 + 2; i > 0; --i) {
      const std::string arguments = CanonicalArguments(random);
      const std::string call = StrCat("{\"name\": \"f\", \"parameters\": ", arguments, "}");
      text += (text.empty() ? "" : "; ") + call;
      apart.push_back(Receive(llama, call, false, random));
      AddResults(Json(apart.back()), apart);
    }
    together.push_back(Receive(llama, text, random() % 2 == 0, random));
    AddResults(Json(together.back()), together);
    CHECK(TextOfPrompt(llama, together, true) == TextOfPrompt(llama, apart, true));
  });
}

}  // namespace
}  // namespace baton
