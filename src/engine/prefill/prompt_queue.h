// The order in which prompts are planned: by tenant, priority, turn and arrival.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/prefill/prompt.h"
#include "engine/prefill/tenant_turns.h"

namespace baton {

// Tenants take turns (TenantTurns), and a step goes on with the next tenant where one leaves something of it. Of a
// tenant's prompts: the higher priority, the earlier turn, then first come first served; streaming prompts come after
// closed ones of equal priority, and low-priority jobs come after all tenants. In every eighth step a tenant's turn
// begins with its oldest prompt, until that has had a part in a step.
//
// Not thread-safe. Prompts must outlive their time in the queue; what orders them changes only while they are outside.
class PromptQueue {
 public:
  void Insert(PrefillPrompt* prompt) { prompts_.insert(prompt); }
  bool Erase(PrefillPrompt* prompt) { return prompts_.erase(prompt) > 0; }
  bool contains(const PrefillPrompt* prompt) const { return prompts_.contains(const_cast<PrefillPrompt*>(prompt)); }
  bool empty() const { return prompts_.empty(); }

  struct Order {
    std::vector<PrefillPrompt*> prompts;
    std::vector<PrefillPrompt*> firsts;  // of each tenant
  };
  // For a step, which gets the number plan().
  Order OrderStep();
  uint64_t plan() const { return plans_; }
  // The step of this order was planned, and computes so many tokens for each tenant. REQUIRES: each prompt that has a
  // part in the step has plan == plan().
  void Charge(const Order& order, const absl::btree_map<std::string, int64_t>& spent);
  // Whether `a` loses its blocks before `b`: low-priority jobs first, then prompts of the tenant that has received
  // most, then those that run last.
  bool GivesWayBefore(const PrefillPrompt& a, const PrefillPrompt& b) const;

  auto begin() const { return prompts_.begin(); }
  auto end() const { return prompts_.end(); }

 private:
  struct RunsBefore {
    bool operator()(const PrefillPrompt* a, const PrefillPrompt* b) const;
  };
  void AddLine(const std::string& tenant, std::vector<PrefillPrompt*> line, Order& order);

  std::set<PrefillPrompt*, RunsBefore> prompts_;
  TenantTurns turns_;
  absl::flat_hash_set<std::string> oldest_first_;  // tenants whose next turn their oldest prompt begins
  uint64_t plans_ = 0;
};

}  // namespace baton
