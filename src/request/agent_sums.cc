#include "request/agent_sums.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "request/request_stages.h"

namespace baton {
namespace {

void Add(const RequestLife& life, absl::Time now, AgentSums& sums) {
  if (life.refused) {
    ++sums.refused;
    return;
  }
  const RequestOutcome& outcome = life.outcome;
  ++sums.requests;
  sums.failed += !outcome.status.ok();
  sums.prompt_tokens += outcome.prompt_tokens;
  sums.cached_tokens += outcome.cached_tokens;
  sums.completion_tokens += outcome.completion_tokens;
  sums.overlap_tokens += OverlapTokens(life);
  const StageTimes times = TimesOf(life.stages, now);
  sums.total += std::max(std::min(life.stages.ended, now) - life.stages.arrived, absl::ZeroDuration());
  sums.upstream += times.upstream;
  sums.queued += times.queue + times.decode_queue;
}

}  // namespace

int64_t OverlapTokens(const RequestLife& life) {
  int64_t before = 0, after = 0;
  for (const PrefillStep& step : life.steps) {
    (life.stages.prefilled - step.ended <= life.stages.complete ? before : after) += step.tokens;
  }
  // `before` includes tokens of a prompt that restarted. The last token of a prompt has no KV
  // before it is decoded.
  const int64_t computed = int64_t{life.outcome.prompt_tokens} - 1 - life.outcome.cached_tokens;
  return std::clamp(computed - after, int64_t{0}, before);
}

std::vector<AgentSums> SumsOf(const Timeline::Lives& lives, absl::Time now) {
  absl::flat_hash_map<std::string, AgentSums> agents;
  for (const auto& life : lives) Add(*life, now, agents[life->agent]);
  std::vector<AgentSums> sorted;
  for (auto& [agent, sums] : agents) {
    sums.agent = agent;
    sorted.push_back(std::move(sums));
  }
  std::ranges::sort(sorted, std::greater<>(), [](const AgentSums& sums) { return std::tie(sums.total, sums.agent); });
  return sorted;
}

}  // namespace baton
