#include "engine/prefill/fair_queue.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "absl/container/btree_set.h"
#include "base/check.h"

namespace baton {

std::vector<FairQueue::Candidate> FairQueue::Order(std::vector<Candidate> candidates) {
  absl::btree_set<std::string> waiting;
  for (const Candidate& candidate : candidates) {
    Line& line = lines_[candidate.tenant];
    if (!line.waits) line.time = std::max(line.time, now_);
    if (candidate.waits) waiting.insert(candidate.tenant);
  }
  std::ranges::sort(candidates, {}, [this](const Candidate& candidate) {
    return std::make_tuple(lines_.at(candidate.tenant).time, candidate.since);
  });
  for (auto line = lines_.begin(); line != lines_.end();) {
    line->second.waits = waiting.contains(line->first);
    line = line->second.waits || line->second.time > now_ ? std::next(line) : lines_.erase(line);
  }
  return candidates;
}

// The current virtual time becomes the least one of the tenants that the step serves, before they
// are charged. Tenants that wait for room do not count, since a returning tenant must not start as
// far back as they are.
void FairQueue::Charge(const absl::btree_map<std::string, int64_t>& tokens) {
  if (tokens.empty()) return;
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const auto& [tenant, spent] : tokens) first = std::min(first, TimeOf(tenant));
  now_ = std::max(now_, first);
  for (const auto& [tenant, spent] : tokens) {
    BATON_CHECK(spent >= 0, "a charge is not negative");
    lines_[tenant] = {.time = TimeOf(tenant) + spent, .waits = lines_[tenant].waits};
  }
}

int64_t FairQueue::TimeOf(const std::string& tenant) const {
  const auto line = lines_.find(tenant);
  if (line == lines_.end()) return now_;
  return line->second.waits ? line->second.time : std::max(line->second.time, now_);
}

}  // namespace baton
