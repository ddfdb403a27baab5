// Which requests PrefillScheduler plans first, and which it takes blocks from.
#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/prefill/scheduler.h"

namespace baton {
namespace {

constexpr uint64_t kOldestFirstEvery = 8;  // steps

}  // namespace

bool PrefillScheduler::RunsBefore::operator()(const Request* a, const Request* b) const {
  // In the background all yield alike, and those that are closed may be many.
  const auto key = [](const Request* request) {
    const bool open = request->task.open && !IsBackground(request->task.priority);
    return std::make_tuple(-int64_t{request->task.priority}, open, request->task.turn, request->arrival);
  };
  return key(a) < key(b);
}

// Each tenant's requests in a line, and the background after all of them. Open prompts do not wait: what they have room
// for is no right of theirs that could add up.
PrefillScheduler::StepOrder PrefillScheduler::OrderStep() {
  absl::btree_map<std::string, std::vector<Request*>> lines;
  std::vector<Request*> background;
  for (Request* request : active_) {
    (IsBackground(request->task.priority) ? background : lines[request->task.tenant]).push_back(request);
  }
  std::vector<TenantTurns::Candidate> candidates;
  for (const auto& [tenant, line] : lines) {
    const auto arrival = [](const Request* request) { return request->arrival; };
    candidates.push_back({.tenant = tenant,
                          .since = std::ranges::min(line, {}, arrival)->arrival,
                          .waits = !std::ranges::all_of(line, [](const Request* r) { return r->task.open; })});
  }
  StepOrder order;
  for (const auto& candidate : turns_.Order(std::move(candidates))) {
    AddLine(candidate.tenant, std::move(lines.at(candidate.tenant)), order);
  }
  if (lines.empty()) {
    AddLine("", std::move(background), order);
  } else {
    order.requests.insert(order.requests.end(), background.begin(), background.end());
  }
  return order;
}

void PrefillScheduler::AddLine(const std::string& tenant, std::vector<Request*> line, StepOrder& order) {
  if (plans_ % kOldestFirstEvery == 0) oldest_first_.insert(tenant);
  if (oldest_first_.contains(tenant)) {
    const auto oldest = std::ranges::min_element(
        line, {}, [](const Request* request) { return std::make_tuple(request->task.open, request->arrival); });
    std::rotate(line.begin(), oldest, oldest + 1);
  }
  order.firsts.push_back(line.front());
  order.requests.insert(order.requests.end(), line.begin(), line.end());
}

// Of a step that has been planned.
void PrefillScheduler::NoteTurns(const StepOrder& order, const StepRoom& room) {
  turns_.Charge(room.spent);
  for (const Request* first : order.firsts) {
    if (first->plan != plans_ && !first->task.open) continue;  // it waits for room, and begins the next turn, too
    oldest_first_.erase(IsBackground(first->task.priority) ? "" : first->task.tenant);
  }
}

// The background first, then those of whoever has had most.
bool PrefillScheduler::GivesWayBefore(const Request& a, const Request& b) const {
  const auto tenants_urgency = [this](const Request& request) {
    return std::make_tuple(IsBackground(request.task.priority), turns_.TimeOf(request.task.tenant));
  };
  const auto of_a = tenants_urgency(a), of_b = tenants_urgency(b);
  return of_a != of_b ? of_a > of_b : RunsBefore()(&b, &a);
}

}  // namespace baton
