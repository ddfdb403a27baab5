#include "engine/prefill/prompt_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/btree_map.h"

namespace baton {
namespace {

constexpr uint64_t kOldestFirstEvery = 8;  // steps

}  // namespace

bool PromptQueue::RunsBefore::operator()(const PrefillPrompt* a, const PrefillPrompt* b) const {
  // The order of a low-priority job does not depend on whether it streams, because all of these
  // jobs yield.
  const auto key = [](const PrefillPrompt* prompt) {
    const bool streams = prompt->streaming && !prompt->is_low_priority();
    return std::make_tuple(-int64_t{prompt->spec.priority}, streams, prompt->queue_order, prompt->arrival);
  };
  return key(a) < key(b);
}

// A tenant that has only streaming prompts does not count as waiting. It earns no credit in steps
// that leave its prompts out.
void PromptQueue::BeginStep(StepPlan& step) {
  step.number = ++steps_;
  absl::btree_map<std::string, std::vector<PrefillPrompt*>> lines;
  std::vector<PrefillPrompt*> low_priority;
  for (PrefillPrompt* prompt : prompts_) {
    (prompt->is_low_priority() ? low_priority : lines[prompt->spec.tenant]).push_back(prompt);
  }
  std::vector<FairQueue::Candidate> candidates;
  for (const auto& [tenant, line] : lines) {
    const auto arrival = [](const PrefillPrompt* prompt) { return prompt->arrival; };
    candidates.push_back({.tenant = tenant,
                          .since = std::ranges::min(line, {}, arrival)->arrival,
                          .waits = !std::ranges::all_of(line, [](const PrefillPrompt* p) { return p->streaming; })});
  }
  for (const auto& candidate : fair_queue_.Order(std::move(candidates))) {
    AddLine(candidate.tenant, std::move(lines.at(candidate.tenant)), step);
  }
  if (lines.empty()) {
    AddLine("", std::move(low_priority), step);
  } else {
    step.order.insert(step.order.end(), low_priority.begin(), low_priority.end());
  }
}

void PromptQueue::AddLine(const std::string& tenant, std::vector<PrefillPrompt*> line, StepPlan& step) {
  if (step.number % kOldestFirstEvery == 0) oldest_first_.insert(tenant);
  if (oldest_first_.contains(tenant)) {
    const auto oldest = std::ranges::min_element(
        line, {}, [](const PrefillPrompt* prompt) { return std::make_tuple(prompt->streaming, prompt->arrival); });
    std::rotate(line.begin(), oldest, oldest + 1);
  }
  step.firsts.push_back(line.front());
  step.order.insert(step.order.end(), line.begin(), line.end());
}

void PromptQueue::Charge(const StepPlan& step) {
  fair_queue_.Charge(step.spent);
  for (const PrefillPrompt* first : step.firsts) {
    if (first->plan != step.number && !first->streaming) continue;  // waits, and stays first
    oldest_first_.erase(first->is_low_priority() ? "" : first->spec.tenant);
  }
}

bool PromptQueue::GivesWayBefore(const PrefillPrompt& a, const PrefillPrompt& b) const {
  const auto tenants_urgency = [this](const PrefillPrompt& prompt) {
    return std::make_tuple(prompt.is_low_priority(), fair_queue_.TimeOf(prompt.spec.tenant));
  };
  const auto of_a = tenants_urgency(a), of_b = tenants_urgency(b);
  return of_a != of_b ? of_a > of_b : RunsBefore()(&b, &a);
}

}  // namespace baton
