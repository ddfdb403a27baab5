// Tests of the tables of members, row by row.
#include "frontend/openai/known_members.h"

#include <map>
#include <string>
#include <vector>

#include "base/strings.h"
#include "catch.h"
#include "frontend/openai/chat_reader.h"
#include "frontend/openai/openai_model.h"

namespace baton {
namespace {

using Rule = KnownMember::Rule;

// Places an object into the body of a chat.
using Body = Json (*)(const Json& object);

Json WithMessages(const Json& messages) { return {{"model", "qwen"}, {"messages", messages}, {"stream", true}}; }
Json WithMessage(const Json& message) { return WithMessages(Json::array({message})); }
Json WithPart(const Json& part) { return WithMessage({{"role", "assistant"}, {"content", Json::array({part})}}); }
Json WithCall(const Json& call) { return WithMessage({{"role", "assistant"}, {"tool_calls", Json::array({call})}}); }
Json WithTool(const Json& tool) {
  Json body = WithMessage({{"role", "user"}, {"content", "hi"}});
  body["tools"] = Json::array({tool});
  return body;
}
Json WithOptions(const Json& options) {
  Json body = WithMessage({{"role", "user"}, {"content", "hi"}});
  body["stream_options"] = options;
  return body;
}

Json WithFormat(const Json& format) {
  Json body = WithMessage({{"role", "user"}, {"content", "hi"}});
  body["response_format"] = format;
  return body;
}
Json WithChoice(const Json& choice) {
  Json body = WithTool({{"type", "function"}, {"function", {{"name", "f"}}}});
  body["tool_choice"] = choice;
  return body;
}

// A table, an object that needs none of its rows but those it has, and whole objects that have the
// rows that the first object may not have. The rows of a function apply to `function` too.
struct Table {
  const char* name;
  std::span<const KnownMember> rows;
  Body body;
  Json least;
  std::map<std::string, Json> examples{};
};

std::vector<Table> Tables() {
  const Json function = {{"name", "f"}};
  const Json call = {{"id", "c"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}};
  return {{"messages",
           MessageMembers(),
           WithMessage,
           {{"role", "assistant"}, {"content", "x"}},
           {{"name", {{"role", "user"}, {"content", "x"}, {"name", "n"}}},
            {"refusal", {{"role", "assistant"}, {"refusal", "no"}}},
            {"reasoning_content", {{"role", "assistant"}, {"reasoning_content", "hm"}}},
            {"reasoning", {{"role", "assistant"}, {"reasoning", "hm"}}},
            {"tool_calls", {{"role", "assistant"}, {"tool_calls", Json::array({call})}}},
            {"function_call", {{"role", "assistant"}, {"function_call", call["function"]}}},
            {"tool_call_id", {{"role", "tool"}, {"content", "x"}, {"tool_call_id", "c"}}}}},
          {"parts",
           PartMembers(),
           WithPart,
           {{"type", "text"}, {"text", "x"}},
           {{"refusal", {{"type", "refusal"}, {"refusal", "no"}}},
            {"thinking", {{"type", "thinking"}, {"thinking", "hm"}}},
            {"reasoning", {{"type", "reasoning"}, {"reasoning", "hm"}}},
            {"data", {{"type", "redacted_thinking"}, {"data", "x"}}},
            {"output_of", {{"type", "output_of"}, {"output_of", "u"}}},
            {"group", {{"type", "group"}, {"group", Json::array()}}}}},
          {"calls", ToolCallMembers(), WithCall, call},
          {"tools",
           ToolMembers(),
           WithTool,
           {{"type", "function"}, {"function", function}},
           {{"description", {{"function", {{"name", "f"}, {"description", "d"}}}}},
            {"parameters", {{"function", {{"name", "f"}, {"parameters", Json::object()}}}}},
            {"strict", {{"function", {{"name", "f"}, {"strict", true}}}}}}},
          {"stream_options",
           StreamOptionMembers(),
           WithOptions,
           Json::object(),
           {{"include_usage", {{"include_usage", true}}},
            {"continuous_usage_stats", {{"continuous_usage_stats", false}}},
            {"include_obfuscation", {{"include_obfuscation", true}}}}},
          {"response_format", ResponseFormatMembers(), WithFormat, {{"type", "text"}}},
          // No object is accepted.
          {"tool_choice", ToolChoiceMembers(), WithChoice, Json()}};
}

std::string ErrorOf(const Table& table, const Json& object) {
  return std::string(Message(ReadChat(table.body(object), TestModels()).status()));
}

// Returns the object with a member, and if it has a function, also that with one in the function.
std::vector<Json> With(const Json& object, const std::string& name, const Json& value) {
  std::vector<Json> with(object.contains("function") ? 2 : 1, object);
  with[0][name] = value;
  if (with.size() > 1) with[1]["function"][name] = value;
  return with;
}

bool Has(const Json& object, const std::string& name) {
  return object.contains(name) || (object.contains("function") && object["function"].contains(name));
}

TEST_CASE("Each member that a reader reads is accepted") {
  for (const Table& table : Tables()) {
    CHECK(ErrorOf(table, table.least) == "");
    for (const KnownMember& row : table.rows) {
      if (row.rule != Rule::kRead) continue;
      const std::string name(row.name);
      CAPTURE(table.name, name);
      const bool has_example = table.examples.contains(name);
      const Json& object = has_example ? table.examples.at(name) : table.least;
      REQUIRE(Has(object, name));
      CHECK(ErrorOf(table, object) == "");
    }
  }
}

TEST_CASE("Each other member is ignored, or refused by name unless it is empty") {
  for (const Table& table : Tables()) {
    for (const KnownMember& row : table.rows) {
      if (row.rule == Rule::kRead) continue;
      const std::string name(row.name);
      CAPTURE(table.name, name);
      for (const Json& empty : {Json(), Json(false), Json(""), Json::array(), Json::object()}) {
        if (row.rule == Rule::kRefused) continue;
        for (const Json& object : With(table.least, name, empty)) CHECK(ErrorOf(table, object) == "");
      }
      for (const Json& value : {Json(true), Json(0), Json(-1.5), Json("x"), Json{1}, Json{{"a", 1}}}) {
        CAPTURE(value.dump());
        for (const Json& object : With(table.least, name, value)) {
          const std::string error = ErrorOf(table, object);
          CHECK((error == "") == (row.rule == Rule::kIgnored));
          if (!error.empty()) CHECK(error.find(name + ": is not supported") != std::string::npos);
        }
      }
    }
  }
}

TEST_CASE("A format or a choice of tools that constrains the answer is refused by name") {
  const auto format = [](const char* json) {
    return std::string(Message(ReadChat(WithFormat(Json::parse(json)), TestModels()).status()));
  };
  const std::string why = "which is not supported: output is not constrained";
  for (const std::string type : {"json_object", "json_schema", "structural_tag", "grammar", ""}) {
    CHECK(format(StrCat(R"({"type": ")", type, R"(", "json_schema": {"name": "n", "schema": {}}})").c_str()) ==
          StrCat("response_format.type: expected 'text', got '", type, "', ", why));
  }
  CHECK(format(R"({})") == "response_format.type: expected 'text', got none");
  CHECK(format(R"({"type": 1})") == "response_format.type: expected a string, got 1");
  CHECK(format(R"({"type": "text", "json_schema": null})") == "");
  CHECK(format(R"("text")") == "response_format: expected an object, got 'text'");
  const auto choice = [](const char* json) {
    return std::string(Message(ReadChat(WithChoice(Json::parse(json)), TestModels()).status()));
  };
  for (const char* forced :
       {R"({"type": "function", "function": {"name": "f"}})", R"({"type": "custom", "custom": {"name": "f"}})",
        R"({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}})"}) {
    CHECK(choice(forced) == "tool_choice.type: is not supported: tools cannot be forced or selected");
  }
  for (const char* other : {"{}", "[]", "1", R"("any")", R"({"type": null})"}) {
    CHECK(choice(other).starts_with("tool_choice: expected 'auto' or 'none', got "));
  }
}

TEST_CASE("An unknown member is refused with the nearest one that is not refused") {
  for (const Table& table : Tables()) {
    for (const Json& object : With(table.least, "unheard_of", 1)) {
      CHECK(ErrorOf(table, object).ends_with("unheard_of: is not supported"));
    }
  }
  const Json user = {{"role", "user"}, {"content", "x"}, {"tool_call", Json::array({1})}};
  CHECK(Message(ReadChat(WithMessage(user), TestModels()).status()) == "messages[0].tool_call: is not supported");
  CHECK(Message(ReadChat(WithOptions({{"include_usages", true}}), TestModels()).status()) ==
        "stream_options.include_usages: is not supported. Did you mean 'include_usage'?");
}

}  // namespace
}  // namespace baton
