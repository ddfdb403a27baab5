#include "engine/prefill/fair_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace baton {

std::vector<FairQueue::Candidate> FairQueue::Order(std::vector<Candidate> candidates) {
  std::ranges::sort(candidates, {}, [this](const Candidate& candidate) {
    return std::make_tuple(times_.TimeOf(candidate.tenant), candidate.since);
  });
  absl::btree_set<std::string> waiting;
  for (const Candidate& candidate : candidates) {
    if (candidate.waits) waiting.insert(candidate.tenant);
  }
  for (const std::string& tenant : waiting_) {
    if (!waiting.contains(tenant)) times_.EndWait(tenant);
  }
  for (const std::string& tenant : waiting) times_.BeginWait(tenant);
  waiting_ = std::move(waiting);
  return candidates;
}

}  // namespace baton
