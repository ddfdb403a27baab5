#include "request/request_stages.h"

#include <algorithm>

namespace baton {

void RequestStages::Place(absl::Time at) {
  placed = at;
  computing = computed = prefilled = decoding = absl::InfiniteFuture();
}

void RequestStages::Started(absl::Time now) { computing = std::min(computing, now); }

void RequestStages::Prefilled(const PrefillDone& done, absl::Time now) {
  const absl::Time earliest = std::min(std::max(complete, placed), now);
  prefilled = now;
  computed = std::clamp(now - done.handoff, earliest, now);
  computing = std::clamp(computed - done.compute - done.copied, earliest, computed);
}

void RequestStages::Updated(const TokenUpdate& update, absl::Time now) {
  const bool has_tokens = !update.tokens.empty();
  if (decoding == absl::InfiniteFuture() && (update.queued || has_tokens)) {
    const absl::Duration queued = std::max(update.queued.value_or(absl::ZeroDuration()), absl::ZeroDuration());
    decoding = std::min(prefilled + queued, now);
  }
  if (first_token == absl::InfiniteFuture() && has_tokens) first_token = now;
}

StageTimes TimesOf(const RequestStages& stages, absl::Time now) {
  StageTimes times;
  absl::Time at = stages.arrived;
  const absl::Time end = std::max(std::min(stages.ended, now), at);
  for (const StageRow& stage : kStageTable) {
    const absl::Time until = std::clamp(stages.*stage.end, at, end);
    times.*stage.time = until - at;
    at = until;
  }
  return times;
}

}  // namespace baton
