// The actions that an agent graph gives to its caller.
//
// Not thread-safe.
#pragma once

#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "agent/agent_node.h"
#include "base/ids.h"

namespace baton {

// An increment: tokens that follow those reported before. If `complete`, they are the last.
struct PromptIncrement {
  AgentNode* node = nullptr;
  std::vector<TokenId> tokens{};
  bool complete = false;
};
// Voids all tokens of the prompt that were reported. The next PromptIncrement begins at the first
// token.
struct PromptRestarted {
  AgentNode* node = nullptr;
};
// The prompt cannot become complete. The graph has removed it.
struct PromptFailed {
  AgentNode* node = nullptr;
  absl::Status status{};
};
// Prompts of clients' requests referred to the output of this live request, and none needs it now:
// they have discarded it, or their requests have ended.
struct OutputUnneeded {
  AgentNode* node = nullptr;
};
using AgentAction = std::variant<PromptIncrement, PromptRestarted, PromptFailed, OutputUnneeded>;

class AgentActions {
 public:
  void Add(AgentAction action) { actions_.push_back(std::move(action)); }
  // No prompt needs the output of this live request. Take leaves out requests with `keep`.
  void AddUnneeded(AgentNode& node) { unneeded_.push_back(&node); }
  // Undoes all calls of AddUnneeded since Take.
  void ForgetUnneeded() { unneeded_.clear(); }
  // Removes all actions of a request that ends.
  void Forget(const AgentNode& node);
  // Returns the actions since the last call, in order. Merges the increments of a prompt into one
  // action, so that no worker begins a step with a part of them.
  std::vector<AgentAction> Take();

 private:
  std::vector<AgentNode*> unneeded_;
  std::vector<AgentAction> actions_;
};

}  // namespace baton
