// The stages of a request's time in a router.
#pragma once

#include <string_view>

#include "absl/time/time.h"
#include "request/answers.h"

namespace baton {

// The times at which a request's stages ended. InfiniteFuture marks a stage that has not ended.
// Workers report durations, because their clocks differ from the router's. The router cuts these
// durations to the time that it has measured itself.
struct RequestStages {
  absl::Time arrived = absl::InfiniteFuture();
  // The session gate admitted the request. Never set for a request without a session.
  absl::Time admitted = absl::InfiniteFuture();
  absl::Time complete = absl::InfiniteFuture();  // all tokens of the prompt are known
  absl::Time placed = absl::InfiniteFuture();    // sent to a prefill worker
  // The next step that computed tokens of the complete prompt began: PrefillStarted arrived, or as
  // PrefillDone reports it.
  absl::Time computing = absl::InfiniteFuture();
  absl::Time computed = absl::InfiniteFuture();     // the last prompt token was computed
  absl::Time prefilled = absl::InfiniteFuture();    // PrefillDone arrived
  absl::Time decoding = absl::InfiniteFuture();     // the decode worker's first step with it began
  absl::Time first_token = absl::InfiniteFuture();  // the first update with tokens arrived
  absl::Time ended = absl::InfiniteFuture();

  bool over() const { return ended != absl::InfiniteFuture(); }

  // The request is sent to a prefill worker, or waits for one (InfiniteFuture).
  void Place(absl::Time at);
  void Started(absl::Time now);
  void Prefilled(const PrefillDone& done, absl::Time now);
  void Updated(const TokenUpdate& update, absl::Time now);
};

// The time that a request spent in each stage. No time is negative, and their sum is the time from
// the request's arrival to its end.
struct StageTimes {
  absl::Duration upstream, queue, prefill, handoff, decode_queue, first_step, decode;
};

// A stage ends at `end`. It begins where the stage of the row before ends, and the first stage
// begins with the request's arrival. The names with `_ms` are the fields of baton.v1.Timings and of
// the log.
struct StageRow {
  std::string_view name;
  std::string_view meaning;  // as in docs/observability.md
  absl::Time RequestStages::*end;
  absl::Duration StageTimes::*time;
};
inline constexpr StageRow kStageTable[] = {
    {"upstream", "from arrival until all outputs in its prompt were complete", &RequestStages::complete,
     &StageTimes::upstream},
    {"queue", "from then until the start of the next step that computed tokens of the prompt",
     &RequestStages::computing, &StageTimes::queue},
    {"prefill", "from then until the last prompt token was computed", &RequestStages::computed, &StageTimes::prefill},
    {"handoff", "from then until the decode worker had all KV blocks", &RequestStages::prefilled, &StageTimes::handoff},
    {"decode_queue", "from then until the start of the decode worker's first step with the request",
     &RequestStages::decoding, &StageTimes::decode_queue},
    {"first_step", "from then until the router received the first token", &RequestStages::first_token,
     &StageTimes::first_step},
    {"decode", "from then until the end, with the pauses of a swapped request", &RequestStages::ended,
     &StageTimes::decode},
};

// Returns the times until the request's end, or until `now`. The stage in which the request is, or
// has ended, has all time since the stage before it.
StageTimes TimesOf(const RequestStages& stages, absl::Time now);

}  // namespace baton
