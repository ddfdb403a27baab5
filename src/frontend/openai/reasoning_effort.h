// OpenAI's reasoning_effort: a variable of the chat template, and a bound on thinking.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "text/chat_values.h"

namespace baton {

// Upper bounds on the tokens of thinking, by effort. 0: no bound. All efforts above medium have no
// bound.
struct ThinkingBudgets {
  int32_t minimal = 256, low = 1024, medium = 4096;
};

// Returns INVALID_ARGUMENT, with the path, if no effort has this name.
absl::Status CheckEffort(std::string_view effort, std::string_view path);
// Returns the bound of an effort, if it has one. The effort "none" has the bound 0. REQUIRES: the
// effort is valid.
std::optional<int32_t> BudgetOf(std::string_view effort, const ThinkingBudgets& budgets);
// Returns a chat's variables with those of the effort: reasoning_effort, and the variables that
// turn thinking on or off, which are enable_thinking (Qwen3) and thinking (DeepSeek-V3.1, Granite).
// A variable that the chat sets itself keeps its value. `variables` is a dict or None.
jinja::Value WithEffort(std::string_view effort, const jinja::Value& variables);

}  // namespace baton
