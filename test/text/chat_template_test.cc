#include "text/chat_template.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "base/strings.h"
#include "catch.h"
#include "source_path.h"
#include "temp_dir.h"

namespace baton {
namespace {

using nlohmann::ordered_json;

absl::StatusOr<std::string> RenderText(const std::string& source, const ChatInput& input = {}) {
  absl::StatusOr<std::unique_ptr<ChatTemplate>> parsed = ChatTemplate::Parse(source, "<s>", "</s>");
  if (!parsed.ok()) return parsed.status();
  return (*parsed)->Render(input);
}

ChatInput Messages(const char* messages, const char* tools = "null", bool generate = true) {
  ChatInput input;
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

std::vector<ChatInput> Conversations() {
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
  ChatInput unthinking = Messages(plain), thinking = Messages(turns);
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

// What each construct does, as jinja2 does it; the test below asks jinja2 itself where it is at hand.
const std::vector<std::pair<std::string, std::string>> kConstructs = {
    {"a\n{% if true %}\nb\n{% endif %}\nc\n", "a\nb\nc"},
    {"x  {%- if true -%}  y  {%- endif -%}  z", "xyz"},
    {"  {% if true %}  k\n  {% endif %}\nend", "  k\nend"},
    {"a {# gone #} b{#- too -#} c", "a  bc"},
    {"{% for i in range(3) %}{{ loop.index0 }}{{ ',' if not loop.last else '.' }}{% endfor %}", "0,1,2."},
    {"{% for i in [] %}x{% else %}none{% endfor %}", "none"},
    {"{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 3 %}{% break %}{% endif %}{{ i }}{% "
     "endfor %}",
     "013"},
    {"{% for i in range(6) if i is odd %}{{ i }}{{ loop.length }}{% endfor %}", "133353"},
    {"{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}", "1"},
    {"{% set ns = namespace(x=1) %}{% for i in [1] %}{% set ns.x = 2 %}{% endfor %}{{ ns.x }}", "2"},
    {"{% for k, v in {'a': 1, 'b': [2]}|items %}{{ k }}={{ v }};{% endfor %}", "a=1;b=[2];"},
    {"{% macro f(a, b='d') %}<{{ a }}{{ b }}>{% endmacro %}{{ f(1) }}{{ f(2, b=3) }}", "<1d><23>"},
    {"{% set t %}a{{ 1 + 1 }}{% endset %}{{ t|upper }}", "A2"},
    {"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 1.0 }} {{ 2 * 3 + 1 }} {{ 'a' ~ 1 }}",
     "3 -4 2 3.5 1.0 7 a1"},
    {"{{ 1 < 2 < 3 }} {{ 1 == 1.0 }} {{ 'a' in 'cat' }} {{ 'k' not in {'k': 1} }} {{ not 0 }}",
     "True True True False True"},
    {"{{ 'abc'[1] }}{{ 'abcd'[::-1] }}{{ [1, 2, 3][1:] }}{{ [1, 2, 3][-1] }}{{ 'äöü'[1:2] }}", "bdcba[2, 3]3ö"},
    {"{{ ' x '.strip() }}|{{ 'xxyx'.lstrip('x') }}|{{ 'a,b'.split(',')[-1] }}|{{ 'a b'.replace(' ', '') }}",
     "x|yx|b|ab"},
    {"{{ 'Hello'.startswith('He') and 'Hello'.endswith('lo') }}{{ 'a  b c'.split() }}", "True['a', 'b', 'c']"},
    {"{{ {'a': none, 'b': [true, 1.5, 'é\"']}|tojson }}", "{\"a\": null, \"b\": [true, 1.5, \"é\\\"\"]}"},
    {"{{ {'a': [1], 'b': {}}|tojson(indent=2) }}", "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}"},
    {"{{ missing }}{{ missing is defined }}{{ messages[9] is defined }}{{ missing|default('d') }}", "FalseFalsed"},
    {"{{ [1, 2]|join('-') }}{{ 'x'|length }}{{ ' y '|trim }}{{ [3, 4]|first }}{{ [3, 4]|last }}", "1-21y34"},
    {"{{ ['a', 'b']|reject('equalto', 'a')|join }}{{ [{'k': 1}, {'k': 2}]|selectattr('k', 'eq', 2)|list }}",
     "b[{'k': 2}]"},
    {"{{ [{'k': 1}, {'k': 2}]|map(attribute='k')|join(',') }}{{ ['a']|map('upper')|list }}", "1,2['A']"},
    {"{{ 'it''s' }}{{ \"a\\n\" }}{{ ['it\\'s'] }}", "itsa\n[\"it's\"]"},
    {"{{ {'a': 1}.get('b', 2) }}{{ {'a': 1}.keys()|list }}{{ 'x' if false }}", "2['a']"},
    {"{{ none is none }}{{ 1 is number }}{{ 'a' is string }}{{ [] is iterable }}{{ {} is mapping }}",
     "TrueTrueTrueTrueTrue"},
    {"{{ messages|length - 1 }}{{ 'a' + 'b'|upper }}{{ 1 if true else 2 if false else 3 }}", "-1aB1"},
    {"{%- set a, b = [1, 2] -%}{{ b }}{{ a }}", "21"},
};

// Runs jinja2 over the cases; empty, with a message, where there is none.
ordered_json AskJinja2(const ordered_json& cases) {
  const std::string root = SourcePath(""), python = root + ".venv/bin/python";
  const std::filesystem::path input =
      std::filesystem::temp_directory_path() / StrCat("baton_jinja_", getpid(), ".json");
  if (!std::filesystem::exists(python)) {
    std::cout << "SKIPPED: comparison with jinja2: no .venv (run tools/setup)\n";
    return {};
  }
  std::ofstream(input) << cases;
  FILE* pipe = popen(StrCat(python, " ", root, "test/text/render_jinja.py < ", input.string()).c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string output;
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, n);
  REQUIRE(pclose(pipe) == 0);
  std::filesystem::remove(input);
  return ordered_json::parse(output);
}

ordered_json Variables(const ChatInput& input) {
  ordered_json variables = {{"messages", input.messages},
                            {"tools", input.tools},
                            {"add_generation_prompt", input.add_generation_prompt},
                            {"bos_token", "<s>"},
                            {"eos_token", "</s>"}};
  if (input.variables.is_object()) variables.update(input.variables);
  return variables;
}

// Both must fail, or both give the same text.
void RequireSame(const std::string& source, const ChatInput& input, const ordered_json& expected) {
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

TEST_CASE("each construct renders as jinja2 renders it") {
  for (const auto& [source, expected] : kConstructs) {
    const absl::StatusOr<std::string> got = RenderText(source, Messages("[]"));
    CAPTURE(source, got.status().ToString());
    REQUIRE(got.ok());
    CHECK(*got == expected);
  }
}

TEST_CASE("jinja2 itself agrees with the constructs' expectations") {
  ordered_json cases = ordered_json::array();
  for (const auto& [source, expected] : kConstructs) {
    cases.push_back({{"template", source}, {"input", Variables(Messages("[]"))}});
  }
  const ordered_json answers = AskJinja2(cases);
  for (size_t i = 0; i < answers.size(); ++i) {
    CAPTURE(kConstructs[i].first);
    CHECK(answers[i].dump() == ordered_json({{"text", kConstructs[i].second}}).dump());
  }
}

TEST_CASE("the templates of real models render as jinja2 renders them") {
  const std::filesystem::path folder = SourcePath("../shared/data/templates");
  if (!std::filesystem::exists(folder)) {
    std::cout << "SKIPPED: real templates: ../shared/data is absent\n";
    return;
  }
  std::vector<std::pair<std::string, ChatInput>> runs;
  ordered_json cases = ordered_json::array();
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream stream(file.path());
    const std::string source{std::istreambuf_iterator<char>(stream), {}};
    for (const ChatInput& input : Conversations()) {
      runs.emplace_back(source, input);
      cases.push_back({{"template", source}, {"input", Variables(input)}});
    }
  }
  REQUIRE(runs.size() >= 7 * 7);
  const ordered_json answers = AskJinja2(cases);
  for (size_t i = 0; i < answers.size(); ++i) RequireSame(runs[i].first, runs[i].second, answers[i]);
}

TEST_CASE("a construct that is not implemented is refused by name and line when the template is parsed") {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n{% include 'x' %}", "line 2: statement 'include'"},
      {"{{ x|urlize }}", "filter 'urlize'"},
      {"{{ x is callable }}", "test 'callable'"},
      {"{{ x.format(1) }}", "method 'format'"},
      {"{{ cycler(1) }}", "function 'cycler'"},
      {"{{ 2 ** 3 }}", "operator '**'"},
      {"{% for x in y recursive %}{% endfor %}", "a recursive loop"},
  };
  for (const auto& [source, name] : cases) {
    const absl::Status status = ChatTemplate::Parse(source, "", "").status();
    CAPTURE(source, status.ToString());
    CHECK(status.code() == absl::StatusCode::kUnimplemented);
    CHECK(Message(status).find(name) != std::string_view::npos);
  }
}

TEST_CASE("a broken template is refused with its line") {
  for (const char* source :
       {"{{ x", "{% if x %}", "{% endif %}", "{{ 'a }}", "{{ }}", "{{ a b }}", "{# x", "{{ x[ }}", "{{ (1 }}",
        "{% set = 1 %}", "{% break %}", "{{ $ }}", "{% if %}x{% endif %}", "{{ 'a\\q' }}"}) {
    const absl::Status status = ChatTemplate::Parse(source, "", "").status();
    CAPTURE(source, status.ToString());
    CHECK_FALSE(status.ok());
    CHECK(Message(status).find("chat template line ") != std::string_view::npos);
  }
}

TEST_CASE("a caller's variables are the template's, unless they are the server's or too large") {
  ChatInput input = Messages("[]");
  input.variables = ordered_json::parse(R"({"mode": {"a": [1, "x"]}, "quiet": false})");
  CHECK(RenderText("{{ mode | tojson }}{{ quiet is defined and quiet is false }}", input).value() ==
        R"({"a": [1, "x"]}True)");
  CHECK(CheckTemplateVariables(input.variables, "f").ok());
  for (const char* name : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "chat_template",
                           "continue_final_message", "raise_exception", "namespace"}) {
    CHECK(Message(CheckTemplateVariables({{"x", 1}, {name, 1}}, "f")) ==
          StrCat("f.", name, ": is none of the variables that a client may set"));
  }
  CHECK(Message(CheckTemplateVariables({{"x", std::string(1 << 16, 'y')}}, "f")) ==
        "f: 65544 bytes of JSON, limit 65536");
}

TEST_CASE("raise_exception reaches the caller with its message and line") {
  const absl::Status status = RenderText("a\n{{ raise_exception('roles must alternate') }}", Messages("[]")).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(status.message() == "chat template line 2: roles must alternate");
}

TEST_CASE("a template that computes with what is undefined or of the wrong type fails") {
  for (const char* source :
       {"{{ x.y }}", "{{ x + 'a' }}", "{{ 'a' + 1 }}", "{{ 1 // 0 }}", "{{ none|length }}",
        "{% for a, b in [[1]] %}{% endfor %}", "{{ 'a' < 1 }}", "{{ x|tojson }}", "{% set x.y = 1 %}"}) {
    CAPTURE(source);
    CHECK(RenderText(source, Messages("[]")).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("steps, text and recursion are limited") {
  for (const char* source : {
           "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
           "{% set l = range(9999)|list %}{% for a in l %}{{ l|length }}{% endfor %}",
           "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% "
           "endfor %}",
           "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
       }) {
    CAPTURE(source);
    CHECK(RenderText(source, Messages("[]")).status().code() == absl::StatusCode::kResourceExhausted);
  }
  CHECK_FALSE(RenderText("{{ " + std::string(5000, '(')).ok());
  CHECK_FALSE(RenderText("{{ " + std::string(5000, '-') + "1 }}").ok());
  std::string nested;
  for (int i = 0; i < 5000; ++i) nested += "{% if true %}";
  CHECK_FALSE(RenderText(nested).ok());
}

TEST_CASE("a template loads from tokenizer_config.json, and chat_template.jinja goes before it") {
  const TempDir dir;
  CHECK(absl::IsNotFound(ChatTemplate::Load(dir.path()).status()));
  dir.Write("tokenizer_config.json", R"({"bos_token": {"content": "<b>"}})");
  CHECK(absl::IsNotFound(ChatTemplate::Load(dir.path()).status()));
  dir.Write(
      "tokenizer_config.json",
      R"({"bos_token": {"content": "<b>"}, "eos_token": "<e>", "chat_template": "{{ bos_token }}1{{ eos_token }}"})");
  CHECK(*(*ChatTemplate::Load(dir.path()))->Render(Messages("[]")) == "<b>1<e>");
  dir.Write("chat_template.jinja", "{{ bos_token }}2");
  CHECK(*(*ChatTemplate::Load(dir.path()))->Render(Messages("[]")) == "<b>2");
  dir.Write("chat_template.jinja", "{% include 'x' %}");
  CHECK(ChatTemplate::Load(dir.path()).status().code() == absl::StatusCode::kUnimplemented);
  dir.Write("tokenizer_config.json", "[]");
  CHECK(absl::IsInvalidArgument(ChatTemplate::Load(dir.path()).status()));
}

TEST_CASE("chat_template.jinja needs no tokenizer_config.json beside it") {
  const TempDir dir;
  dir.Write("chat_template.jinja", "{{ bos_token }}2");
  CHECK(*(*ChatTemplate::Load(dir.path()))->Render(Messages("[]")) == "2");
  dir.Write("special_tokens_map.json", R"({"bos_token": "<b>"})");
  CHECK(*(*ChatTemplate::Load(dir.path()))->Render(Messages("[]")) == "<b>2");
}

}  // namespace baton
