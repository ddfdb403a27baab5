#include "frontend/openai/reasoning_effort.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/strings.h"

namespace baton {
namespace {

struct Effort {
  std::string_view name;
  int32_t ThinkingBudgets::*budget = nullptr;
};

// The values of ReasoningEffort in OpenAI's package `openai`.
constexpr Effort kEfforts[] = {{"none"},
                               {"minimal", &ThinkingBudgets::minimal},
                               {"low", &ThinkingBudgets::low},
                               {"medium", &ThinkingBudgets::medium},
                               {"high"},
                               {"xhigh"},
                               {"max"}};

const Effort* Find(std::string_view name) {
  const auto* const found = std::ranges::find(kEfforts, name, &Effort::name);
  return found == std::end(kEfforts) ? nullptr : found;
}

}  // namespace

absl::Status CheckEffort(std::string_view effort, std::string_view path) {
  if (Find(effort) != nullptr) return absl::OkStatus();
  std::string names;
  for (const Effort& one : kEfforts) names += StrCat(names.empty() ? "" : ", ", "'", one.name, "'");
  return absl::InvalidArgumentError(
      StrCat(path, ": expected one of ", names, ", got ", ShowJson(Json(std::string(effort)))));
}

std::optional<int32_t> BudgetOf(std::string_view effort, const ThinkingBudgets& budgets) {
  const Effort* const found = Find(effort);
  BATON_CHECK(found != nullptr, "the reader of efforts has checked the name");
  if (effort == "none") return 0;
  if (found->budget == nullptr || budgets.*found->budget == 0) return std::nullopt;
  return budgets.*found->budget;
}

jinja::Value WithEffort(std::string_view effort, const jinja::Value& variables) {
  const jinja::Dict* const own = variables.AsDict();
  jinja::Dict merged = own == nullptr ? jinja::Dict{} : *own;
  const auto add = [&](const char* name, jinja::Value value) {
    if (jinja::Find(merged, name) == nullptr) merged.emplace_back(name, std::move(value));
  };
  add("reasoning_effort", std::string(effort));
  for (const char* name : {"enable_thinking", "thinking"}) add(name, effort != "none");
  return jinja::Value::MakeDict(std::move(merged));
}

}  // namespace baton
