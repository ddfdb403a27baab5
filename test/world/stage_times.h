// The rule of a request's stages: each moment of the request belongs to exactly one stage.
#pragma once

#include <algorithm>
#include <ranges>
#include <vector>

#include "catch.h"
#include "request/timeline.h"

namespace baton {

inline absl::Duration Sum(const StageTimes& times) {
  absl::Duration sum;
  for (const StageRow& stage : kStageTable) sum += times.*stage.time;
  return sum;
}

inline void CheckStages(const RequestOutcome& outcome) {
  INFO(outcome.id << " ended with " << outcome.status << " after " << outcome.total);
  for (const StageRow& stage : kStageTable) {
    INFO(stage.name << " took " << outcome.times.*stage.time);
    CHECK(outcome.times.*stage.time >= absl::ZeroDuration());
  }
  CHECK(Sum(outcome.times) == outcome.total);
  CHECK(outcome.router_queue <= outcome.times.queue);
  CHECK(outcome.session_wait <= outcome.times.upstream + outcome.times.queue);
}

// Checks that the phases of a life up to `now` agree with its stages.
inline void CheckPhases(const RequestLife& life, absl::Time now) {
  const std::vector<PhaseSpan> spans = SpansOf(life, now);
  const auto sum = [&](const std::vector<Phase>& phases) {
    absl::Duration total;
    for (const PhaseSpan& span : spans) {
      if (std::ranges::find(phases, span.phase) != phases.end()) total += span.end - span.begin;
    }
    return total;
  };
  INFO(life.outcome.id << " ended with " << life.outcome.status << " after " << life.outcome.total);
  const StageTimes& times = life.outcome.times;
  // A streaming prompt is computed while it waits for upstream requests, and short pauses between
  // steps count as prefill.
  CHECK(sum({Phase::kWaiting, Phase::kQueued, Phase::kPrefill}) == times.upstream + times.queue + times.prefill);
  CHECK(sum({Phase::kHandoff}) == times.handoff);
  CHECK(sum({Phase::kDecodeQueue}) == times.decode_queue);
  CHECK(sum({Phase::kFirstStep}) == times.first_step);
  CHECK(sum({Phase::kDecode}) == times.decode);
}

}  // namespace baton
