// Tests of the template language on whole templates, compared with jinja2.
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/strings.h"
#include "catch.h"
#include "text/jinja/ask_jinja2.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace baton::jinja {
namespace {

using nlohmann::ordered_json;

ordered_json Globals() { return {{"messages", ordered_json::array()}, {"tools", nullptr}}; }

absl::StatusOr<std::string> RenderText(const std::string& source) {
  ASSIGN_OR_RETURN(const Body body, Parse(source));
  const Value globals = Value::FromJson(Globals());
  return Run(body, *globals.AsDict(), absl::UnixEpoch(), Limits{});
}

// Templates with the text that jinja2 renders. Where jinja2 is installed, the second test asks
// jinja2 itself.
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

}  // namespace

TEST_CASE("The interpreter renders each construct like jinja2") {
  for (const auto& [source, expected] : kConstructs) {
    const absl::StatusOr<std::string> got = RenderText(source);
    CAPTURE(source, got.status().ToString());
    REQUIRE(got.ok());
    CHECK(*got == expected);
  }
}

TEST_CASE("jinja2 renders each construct as expected") {
  ordered_json cases = ordered_json::array();
  for (const auto& [source, expected] : kConstructs) {
    cases.push_back({{"template", source}, {"input", Globals()}});
  }
  const ordered_json answers = AskJinja2(cases);
  for (size_t i = 0; i < answers.size(); ++i) {
    CAPTURE(kConstructs[i].first);
    CHECK(answers[i].dump() == ordered_json({{"text", kConstructs[i].second}}).dump());
  }
}

TEST_CASE("The parser refuses an unsupported construct by name and line") {
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
    const absl::Status status = Parse(source).status();
    CAPTURE(source, status.ToString());
    CHECK(status.code() == absl::StatusCode::kUnimplemented);
    CHECK(Message(status).find(name) != std::string_view::npos);
  }
}

TEST_CASE("The parser refuses a broken template with its line") {
  for (const char* source :
       {"{{ x", "{% if x %}", "{% endif %}", "{{ 'a }}", "{{ }}", "{{ a b }}", "{# x", "{{ x[ }}", "{{ (1 }}",
        "{% set = 1 %}", "{% break %}", "{{ $ }}", "{% if %}x{% endif %}", "{{ 'a\\q' }}"}) {
    const absl::Status status = Parse(source).status();
    CAPTURE(source, status.ToString());
    CHECK_FALSE(status.ok());
    CHECK(Message(status).find("chat template line ") != std::string_view::npos);
  }
}

TEST_CASE("The interpreter fails when a template computes with a wrong or undefined value") {
  for (const char* source :
       {"{{ x.y }}", "{{ x + 'a' }}", "{{ 'a' + 1 }}", "{{ 1 // 0 }}", "{{ none|length }}",
        "{% for a, b in [[1]] %}{% endfor %}", "{{ 'a' < 1 }}", "{{ x|tojson }}", "{% set x.y = 1 %}"}) {
    CAPTURE(source);
    CHECK(RenderText(source).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("The interpreter limits steps, text and recursion") {
  for (const char* source : {
           "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
           "{% set l = range(9999)|list %}{% for a in l %}{{ l|length }}{% endfor %}",
           "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% "
           "endfor %}",
           "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
       }) {
    CAPTURE(source);
    CHECK(RenderText(source).status().code() == absl::StatusCode::kResourceExhausted);
  }
  CHECK_FALSE(RenderText("{{ " + std::string(5000, '(')).ok());
  CHECK_FALSE(RenderText("{{ " + std::string(5000, '-') + "1 }}").ok());
  std::string nested;
  for (int i = 0; i < 5000; ++i) nested += "{% if true %}";
  CHECK_FALSE(RenderText(nested).ok());
}

}  // namespace baton::jinja
