#include "text/chat_template.h"

#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/strings.h"
#include "catch.h"
#include "source_path.h"
#include "temp_dir.h"
#include "text/jinja/ask_jinja2.h"

namespace baton {
namespace {

using nlohmann::ordered_json;

// A ChatInput in JSON.
struct JsonInput {
  ordered_json messages, tools, variables;
  bool add_generation_prompt = true;
  absl::Time now;
};

absl::StatusOr<std::string> RenderText(const std::string& source, const JsonInput& input = {}) {
  absl::StatusOr<std::unique_ptr<ChatTemplate>> parsed = ChatTemplate::Parse(source, "<s>", "</s>");
  if (!parsed.ok()) return parsed.status();
  return (*parsed)->Render({.messages = jinja::Value::FromJson(input.messages),
                            .tools = jinja::Value::FromJson(input.tools),
                            .variables = jinja::Value::FromJson(input.variables),
                            .add_generation_prompt = input.add_generation_prompt,
                            .now = input.now});
}

JsonInput Messages(const char* messages, const char* tools = "null", bool generate = true) {
  JsonInput input;
  input.messages = ordered_json::parse(messages);
  input.tools = ordered_json::parse(tools);
  input.add_generation_prompt = generate;
  input.now = absl::UnixEpoch();
  return input;
}

constexpr const char* kTools = R"([{"type": "function", "function": {"name": "get_weather",
    "description": "Look \"outside\"\n", "parameters": {"type": "object", "properties": {"city": {"type": "string",
    "description": " Ort <ü> "}, "days": {"type": "integer", "description": "n"}, "when": {"type": ["string", "null"],
    "description": "d"}}, "required": ["city"]}, "return": {"type": "number", "description": "degrees"}}}])";

std::vector<JsonInput> Conversations() {
  const char* plain = R"([{"role": "system", "content": " You are terse. /no_think "},
      {"role": "user", "content": "  Grüße, 世界 🎭\n"}])";
  const char* turns =
      R"([{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\n2"},
      {"role": "user", "content": "and 2+2?"}, {"role": "assistant", "content": "4"}])";
  const char* calls = R"([{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "", "tool_calls":
      [{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln", "days": 3, "x": [1.5, null,
      true]}}}]}, {"role": "tool", "name": "get_weather", "content": "{\"t\": 11}"}, {"role": "assistant", "content": "11"},
      {"role": "user", "content": "Thanks"}])";
  const char* thoughts = R"([{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2",
      "reasoning_content": "one and one"}, {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "Yes",
      "reasoning_content": "again"}])";
  JsonInput unthinking = Messages(plain), thinking = Messages(turns);
  unthinking.variables = {{"enable_thinking", false}};
  thinking.variables = {{"enable_thinking", true}};
  return {unthinking,
          thinking,
          Messages(thoughts),
          Messages(thoughts, "null", false),
          Messages(plain),
          Messages(turns),
          Messages(turns, "null", false),
          Messages(plain, kTools),
          Messages(calls, kTools),
          Messages(calls),
          Messages(R"([{"role": "user", "content": "hi"}])")};
}

ordered_json Variables(const JsonInput& input) {
  ordered_json variables = {{"messages", input.messages},
                            {"tools", input.tools},
                            {"add_generation_prompt", input.add_generation_prompt},
                            {"bos_token", "<s>"},
                            {"eos_token", "</s>"}};
  if (input.variables.is_object()) variables.update(input.variables);
  return variables;
}

// Checks that both fail, or that both give the same text.
void RequireSame(const std::string& source, const JsonInput& input, const ordered_json& expected) {
  const absl::StatusOr<std::string> got = RenderText(source, input);
  CAPTURE(source, expected.dump(), got.status().ToString());
  if (expected.contains("error")) {
    REQUIRE_FALSE(got.ok());
  } else {
    REQUIRE(got.ok());
    REQUIRE(*got == expected["text"].get<std::string>());
  }
}

}  // namespace

TEST_CASE("ChatTemplate renders the templates of real models like jinja2") {
  const std::filesystem::path folder = SourcePath("../shared/data/templates");
  if (!std::filesystem::exists(folder)) {
    std::cout << "SKIPPED: real templates: ../shared/data is absent\n";
    return;
  }
  std::vector<std::pair<std::string, JsonInput>> runs;
  ordered_json cases = ordered_json::array();
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream stream(file.path());
    const std::string source{std::istreambuf_iterator<char>(stream), {}};
    for (const JsonInput& input : Conversations()) {
      runs.emplace_back(source, input);
      cases.push_back({{"template", source}, {"input", Variables(input)}});
    }
  }
  REQUIRE(runs.size() >= 7 * 7);
  const ordered_json answers = AskJinja2(cases);
  for (size_t i = 0; i < answers.size(); ++i) RequireSame(runs[i].first, runs[i].second, answers[i]);
}

TEST_CASE("ChatTemplate uses a caller's variables unless they are reserved or too large") {
  JsonInput input = Messages("[]");
  input.variables = ordered_json::parse(R"({"mode": {"a": [1, "x"]}, "quiet": false})");
  CHECK(RenderText("{{ mode | tojson }}{{ quiet is defined and quiet is false }}", input).value() ==
        R"({"a": [1, "x"]}True)");
  CHECK(CheckTemplateVariables(input.variables, "f").ok());
  for (const char* name : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "chat_template",
                           "continue_final_message", "raise_exception", "namespace"}) {
    CHECK(Message(CheckTemplateVariables({{"x", 1}, {name, 1}}, "f")) ==
          StrCat("f.", name, ": a client may not set this variable"));
  }
  CHECK(Message(CheckTemplateVariables({{"x", std::string(1 << 16, 'y')}}, "f")) ==
        "f: expected at most 65536 bytes of JSON, got 65544");
}

TEST_CASE("ChatTemplate returns the message and line of raise_exception") {
  const absl::Status status = RenderText("a\n{{ raise_exception('roles must alternate') }}", Messages("[]")).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(status.message() == "chat template line 2: roles must alternate");
}

TEST_CASE("ChatTemplate prefers chat_template.jinja over tokenizer_config.json") {
  const TempDir dir;
  CHECK(absl::IsNotFound(ChatTemplate::Load(dir.path()).status()));
  dir.Write("tokenizer_config.json", R"({"bos_token": {"content": "<b>"}})");
  CHECK(absl::IsNotFound(ChatTemplate::Load(dir.path()).status()));
  dir.Write(
      "tokenizer_config.json",
      R"({"bos_token": {"content": "<b>"}, "eos_token": "<e>", "chat_template": "{{ bos_token }}1{{ eos_token }}"})");
  CHECK(*(*ChatTemplate::Load(dir.path()))->Render(ChatInput()) == "<b>1<e>");
  dir.Write("chat_template.jinja", "{{ bos_token }}2");
  CHECK(*(*ChatTemplate::Load(dir.path()))->Render(ChatInput()) == "<b>2");
  dir.Write("chat_template.jinja", "{% include 'x' %}");
  CHECK(ChatTemplate::Load(dir.path()).status().code() == absl::StatusCode::kUnimplemented);
  dir.Write("tokenizer_config.json", "[]");
  CHECK(absl::IsInvalidArgument(ChatTemplate::Load(dir.path()).status()));
}

TEST_CASE("ChatTemplate finds the template for chats with tools by its name") {
  const TempDir dir;
  const auto rendered = [&](std::string_view name) {
    const auto loaded = ChatTemplate::Load(dir.path(), name);
    return loaded.ok() ? *(*loaded)->Render(ChatInput()) : absl::StatusCodeToString(loaded.status().code());
  };
  const auto both = [&] { return std::pair(rendered(ChatTemplate::kDefault), rendered(ChatTemplate::kToolUse)); };
  using Both = std::pair<std::string, std::string>;
  dir.Write("tokenizer_config.json", R"({"chat_template": "1"})");
  CHECK(both() == Both("1", "NOT_FOUND"));
  dir.Write("tokenizer_config.json",
            R"({"chat_template": [{"name": "default", "template": "1"}, {"name": "tool_use", "template": "2"}]})");
  CHECK(both() == Both("1", "2"));
  dir.Write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "2"}]})");
  CHECK(both() == Both("INVALID_ARGUMENT", "2"));
  // A file for chats replaces all templates of the configuration.
  dir.Write("chat_template.jinja", "3");
  CHECK(both() == Both("3", "NOT_FOUND"));
  std::filesystem::create_directory(dir / "additional_chat_templates");
  dir.Write("additional_chat_templates/tool_use.jinja", "4");
  CHECK(both() == Both("3", "4"));
  dir.Write("additional_chat_templates/tool_use.jinja", "{% include 'x' %}");
  const absl::Status status = ChatTemplate::Load(dir.path(), ChatTemplate::kToolUse).status();
  CHECK(status.message().find("the template 'tool_use': ") != absl::string_view::npos);
}

TEST_CASE("ChatTemplate loads chat_template.jinja without tokenizer_config.json") {
  const TempDir dir;
  dir.Write("chat_template.jinja", "{{ bos_token }}2");
  CHECK(*(*ChatTemplate::Load(dir.path()))->Render(ChatInput()) == "2");
  dir.Write("special_tokens_map.json", R"({"bos_token": "<b>"})");
  CHECK(*(*ChatTemplate::Load(dir.path()))->Render(ChatInput()) == "<b>2");
}

}  // namespace baton
