#include "frontend/openai/reasoning_effort.h"

#include <string>

#include "base/strings.h"
#include "catch.h"
#include "frontend/openai/chat_reader.h"
#include "frontend/openai/openai_model.h"

namespace baton {
namespace {

absl::StatusOr<CompletionCall> ReadWith(const std::string& fields) {
  const auto body =
      ParseJsonBody(R"({"model": "think", "messages": [{"role": "user", "content": "hi"}], )" + fields + "}");
  INFO(body.status());
  REQUIRE(body.ok());
  return ReadChat(*body, TestModels());
}

std::string VariablesOf(const std::string& fields) {
  const auto call = ReadWith(fields);
  INFO(call.status());
  REQUIRE(call.ok());
  return *jinja::ToJson(call->values.variables, -1);
}

TEST_CASE("BudgetOf gives the configured bound of an effort") {
  const ThinkingBudgets budgets{.minimal = 10, .low = 0, .medium = 30};
  CHECK(BudgetOf("none", budgets) == 0);
  CHECK(BudgetOf("minimal", budgets) == 10);
  CHECK(BudgetOf("low", budgets) == std::nullopt);  // 0: no bound
  CHECK(BudgetOf("medium", budgets) == 30);
  for (const char* effort : {"high", "xhigh", "max"}) CHECK(BudgetOf(effort, budgets) == std::nullopt);
  CHECK(BudgetOf("minimal", {}) == 256);
  CHECK(BudgetOf("low", {}) == 1024);
  CHECK(BudgetOf("medium", {}) == 4096);
}

TEST_CASE("ReadChat gives the effort to the template unless the chat sets the variable") {
  for (const char* effort : {"minimal", "low", "medium", "high", "xhigh", "max"}) {
    CHECK(VariablesOf(StrCat(R"("reasoning_effort": ")", effort, "\"")) ==
          StrCat(R"({"reasoning_effort": ")", effort, R"(", "enable_thinking": true, "thinking": true})"));
    CHECK(ReadWith(StrCat(R"("reasoning_effort": ")", effort, "\""))->reasoning_effort == effort);
  }
  CHECK(VariablesOf(R"("reasoning_effort": "none")") ==
        R"({"reasoning_effort": "none", "enable_thinking": false, "thinking": false})");
  CHECK(VariablesOf(R"("reasoning_effort": null)") == "null");
  CHECK(ReadWith(R"("reasoning_effort": null)")->reasoning_effort.empty());
  CHECK(VariablesOf(R"("reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": true, "x": 1})") ==
        R"({"enable_thinking": true, "x": 1, "reasoning_effort": "none", "thinking": false})");
  CHECK(VariablesOf(R"("reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "deep"})") ==
        R"({"reasoning_effort": "deep", "enable_thinking": true, "thinking": true})");
}

TEST_CASE("ReadChat refuses an effort that OpenAI does not have") {
  const std::string names = "expected one of 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max', got ";
  for (const char* other : {"", "Low", "ultra", "low ", "none\\u0000"}) {
    const auto call = ReadWith(StrCat(R"("reasoning_effort": ")", other, "\""));
    CHECK(absl::IsInvalidArgument(call.status()));
    CHECK(Message(call.status()).starts_with("reasoning_effort: " + names));
  }
  for (const char* other : {"3", "0.5", "true", "[]", R"(["low"])", R"({"effort": "low"})"}) {
    const auto call = ReadWith(StrCat(R"("reasoning_effort": )", other));
    CHECK(absl::IsInvalidArgument(call.status()));
    CHECK(Message(call.status()).starts_with("reasoning_effort: expected a string, got "));
  }
  const auto call = ReadWith(StrCat(R"("reasoning_effort": ")", std::string(1'000'000, 'x'), "\""));
  CHECK(absl::IsInvalidArgument(call.status()));
  CHECK(call.status().message().size() < 1000);
}

}  // namespace
}  // namespace baton
