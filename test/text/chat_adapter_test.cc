#include "text/chat_adapter.h"

#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/json/json_body.h"
#include "base/strings.h"
#include "catch.h"
#include "source_path.h"
#include "text/chat_templates.h"

namespace baton {
namespace {

std::unique_ptr<ChatTemplate> Parse(const std::string& source) {
  auto parsed = ChatTemplate::Parse(source, "<s>", "</s>");
  INFO(parsed.status());
  REQUIRE(parsed.ok());
  return *std::move(parsed);
}

// Writes the abilities as "tools calls several results system users", without those that are
// missing.
std::string Show(const ChatAbilities& can) {
  std::string out;
  const auto add = [&](bool has, std::string_view name) {
    if (has) out += StrCat(out.empty() ? "" : " ", name);
  };
  add(can.tools, "tools");
  add(can.calls, "calls");
  add(can.several_calls, "several");
  add(can.results, "results");
  add(can.system, "system");
  add(can.repeated_users, "users");
  return out;
}

// Renders a chat without a generation prompt.
std::string Render(const ChatTemplate& chat_template, const char* messages, const char* tools = "null") {
  ChatInput input{.messages = jinja::Value::FromJson(Json::parse(messages)),
                  .tools = jinja::Value::FromJson(Json::parse(tools)),
                  .add_generation_prompt = false,
                  .now = absl::UnixEpoch()};
  const auto text = chat_template.Render(AdaptChat(input, chat_template.abilities()));
  INFO(text.status());
  REQUIRE(text.ok());
  return *text;
}

// The tool of docs/openai.md.
constexpr char kOneTool[] =
    R"([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}])";
constexpr char kTwoCalls[] =
    R"([{"role": "user", "content": "go"},
        {"role": "assistant", "content": "Hm.", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": "é}"}}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "no JSON"}}]},
        {"role": "tool", "tool_call_id": "b", "content": "of b"},
        {"role": "tool", "tool_call_id": "a", "content": "of a"},
        {"role": "tool", "tool_call_id": "c", "content": "of c"},
        {"role": "user", "content": "next"}])";

}  // namespace

TEST_CASE("AbilitiesOf finds what a template refuses or leaves out") {
  CHECK(Show(AbilitiesOf(*Parse(kQwenChat))) == "tools calls several results system users");
  CHECK(Show(AbilitiesOf(*Parse(kLlamaChat))) == "tools calls results system users");
  CHECK(Show(AbilitiesOf(*Parse(kHermesChat))) == "tools calls several results system users");
  CHECK(Show(AbilitiesOf(*Parse(kPlainChat))) == "system users");
  CHECK(Show(AbilitiesOf(*Parse(kStrictChat))) == "");
  CHECK(Show(AbilitiesOf(*Parse("{{ raise_exception('no') }}"))) == "");
}

TEST_CASE("AbilitiesOf finds the abilities of real models' templates") {
  const std::filesystem::path folder = SourcePath("../shared/data/templates");
  if (!std::filesystem::exists(folder)) {
    std::cout << "SKIPPED: real templates: ../shared/data is absent\n";
    return;
  }
  const std::pair<const char*, const char*> kExpected[] = {
      {"HuggingFaceTB-SmolLM3-3B", "results system users"},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "tools calls several results system users"},
      {"Qwen-QwQ-32B", "tools calls several results system users"},
      {"Qwen-Qwen2.5-7B-Instruct", "tools calls several results system users"},
      {"Qwen-Qwen3-0.6B", "tools calls several results system users"},
      {"meta-llama-Llama-3.1-8B-Instruct", "tools calls results system users"},
      {"meta-llama-Llama-3.2-3B-Instruct", "tools calls results system users"}};
  for (const auto& [name, expected] : kExpected) {
    INFO(name);
    std::ifstream stream(folder / StrCat(name, ".jinja"));
    CHECK(Show(AbilitiesOf(*Parse(std::string{std::istreambuf_iterator<char>(stream), {}}))) == expected);
  }
}

TEST_CASE("AdaptChat changes no chat that a template can show") {
  const auto qwen = Parse(kQwenChat);
  const ChatInput input{.messages = jinja::Value::FromJson(Json::parse(kTwoCalls)),
                        .tools = jinja::Value::FromJson(Json::parse(kOneTool)),
                        .now = absl::UnixEpoch()};
  const ChatInput adapted = AdaptChat(input, qwen->abilities());
  CHECK(adapted.messages == input.messages);
  CHECK(adapted.tools == input.tools);
  const ChatAbilities none{false, false, false, false, false, false};
  const auto plain = jinja::Value::FromJson(Json::parse(R"([{"role": "user", "content": "a"}, {"role": "user"}])"));
  CHECK(AdaptChat({.messages = plain, .now = absl::UnixEpoch()}, none).messages == plain);
}

TEST_CASE("AdaptChat puts tools into the system message, or makes one") {
  const auto plain = Parse(kPlainChat);
  const std::string alone = Render(*plain, R"([{"role": "user", "content": "hi"}])", kOneTool);
  const std::string begin = "<|im_start|>system\n", end = "<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n";
  REQUIRE(alone.starts_with(begin + "You may call functions."));
  REQUIRE(alone.ends_with(end));
  const std::string block = alone.substr(begin.size(), alone.size() - begin.size() - end.size());
  std::ifstream stream(SourcePath("docs/openai.md"));
  const std::string page{std::istreambuf_iterator<char>(stream), {}};
  CHECK(page.find(StrCat("```\n", block, "\n```\n")) != std::string::npos);
  CHECK(Render(*plain, R"([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}])", kOneTool) ==
        StrCat(begin, "Be kind.\n\n", block, end));
  const auto strict = Parse(kStrictChat);
  CHECK(Render(*strict, R"([{"role": "user", "content": "hi"}])", kOneTool) == StrCat("<|user|>", block, "\n\nhi"));
  CHECK(Render(*strict, "[]", kOneTool) == StrCat("<|user|>", block));
  CHECK(Render(*plain, R"([{"role": "user", "content": "hi"}])", "[]") == "<|im_start|>user\nhi<|im_end|>\n");
}

TEST_CASE("AdaptChat writes calls and results as text for a template without them") {
  const std::string calls =
      "Hm.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"é}\"}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"g\", \"arguments\": no JSON}\n</tool_call>";
  const std::string results =
      "<tool_response>\nof b\n</tool_response>\n<tool_response>\nof a\n</tool_response>\n"
      "<tool_response>\nof c\n</tool_response>";
  CHECK(Render(*Parse(kPlainChat), kTwoCalls) == StrCat("<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n",
                                                        calls, "<|im_end|>\n<|im_start|>user\n", results,
                                                        "<|im_end|>\n<|im_start|>user\nnext<|im_end|>\n"));
  CHECK(Render(*Parse(kStrictChat), kTwoCalls) ==
        StrCat("<|user|>go<|assistant|>", calls, "<|user|>", results, "\nnext"));
}

TEST_CASE("AdaptChat writes calls and results as text beside a block of tools") {
  // As the template of DeepSeek-R1-Distill: it shows calls and results, and no tools.
  const auto chat_template = Parse(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.tool_calls %}{% for c in m.tool_calls %}"
      "[call {{ c.function.name }}]{% endfor %}{% endif %}{% if m.role == 'tool' %}[end]{% endif %}{% endfor %}");
  REQUIRE(Show(chat_template->abilities()) == "calls several results system users");
  const std::string with_tools = Render(*chat_template, kTwoCalls, kOneTool);
  CHECK(with_tools.find("[call") == std::string::npos);
  CHECK(with_tools.find("<tool_call>\n{\"name\": \"f\"") != std::string::npos);
  CHECK(with_tools.find("<user><tool_response>\nof b\n</tool_response>") != std::string::npos);
  CHECK(Render(*chat_template, kTwoCalls).find("<assistant>Hm.[call f][call g]<tool>of b[end]") != std::string::npos);
}

TEST_CASE("AdaptChat splits several calls for a template that shows one") {
  const auto llama = Parse(kLlamaChat);
  CHECK(Render(*llama, kTwoCalls) ==
        "<|user|>go<|eot|><|assistant|>{\"name\": \"f\", \"parameters\": {\"x\": \"é}\"}}<|eot|><|ipython|>of a<|eot|>"
        "<|assistant|>{\"name\": \"g\", \"parameters\": \"no JSON\"}<|eot|><|ipython|>of b<|eot|>"
        "<|ipython|>of c<|eot|><|user|>next<|eot|>");
  // Calls without ids get their results in order, and results may be missing.
  CHECK(Render(*llama, R"([{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f",
                           "arguments": {}}}, {"function": {"name": "g", "arguments": {}}}]}, {"role": "tool", "content": "1"}])")
            .find("<|ipython|>1<|eot|><|assistant|>{\"name\": \"g\"") != std::string::npos);
}

TEST_CASE("AdaptChat accepts calls of any shape") {
  for (const char* call : {"3", "{}", R"({"function": 1})", R"({"function": {"name": [1], "arguments": [2]}})"}) {
    const std::string messages = StrCat(R"([{"role": "assistant", "content": "", "tool_calls": [)", call, "]}]");
    CHECK(Render(*Parse(kPlainChat), messages.c_str()).find("<tool_call>") != std::string::npos);
  }
}

}  // namespace baton
