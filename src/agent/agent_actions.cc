#include "agent/agent_actions.h"

#include <cstddef>

#include "absl/container/flat_hash_map.h"

namespace baton {

void AgentActions::Forget(const AgentNode& node) {
  std::erase_if(actions_, [&](const AgentAction& action) {
    return std::visit([&](const auto& concrete) { return concrete.node == &node; }, action);
  });
  std::erase(unneeded_, &node);
}

std::vector<AgentAction> AgentActions::Take() {
  for (AgentNode* node : std::exchange(unneeded_, {})) {
    if (!node->keep) actions_.push_back(OutputUnneeded{node});
  }
  if (actions_.empty()) return {};
  std::vector<AgentAction> merged;
  // Index of the prompt's PromptIncrement in `merged`.
  absl::flat_hash_map<AgentNode*, size_t> increments;
  for (AgentAction& action : std::exchange(actions_, {})) {
    if (auto* more = std::get_if<PromptIncrement>(&action)) {
      const auto [before, is_new] = increments.try_emplace(more->node, merged.size());
      if (!is_new) {
        auto& first = std::get<PromptIncrement>(merged[before->second]);
        first.tokens.insert(first.tokens.end(), more->tokens.begin(), more->tokens.end());
        first.complete = more->complete;
        continue;
      }
    } else if (const auto* restarted = std::get_if<PromptRestarted>(&action)) {
      increments.erase(restarted->node);
    }
    merged.push_back(std::move(action));
  }
  return merged;
}

}  // namespace baton
