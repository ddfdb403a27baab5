// How a request went.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "request/answers.h"
#include "request/jobs.h"

namespace baton {

// A request that is over, as its client, the log, metrics and traces see it.
struct RequestOutcome {
  RequestId id;  // its client's name for it
  std::string call, tenant, model, trace_id;
  WorkerAddress prefill_worker, decode_worker;  // links that had it last; empty: none
  bool prefill_only = false;
  absl::Status status;
  absl::Duration retry_after;  // zero: unknown
  FinishReason finish = FinishReason::kStop;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t shared_tokens = 0;  // of these
  int32_t completion_tokens = 0;
  absl::Duration session_wait;                                           // for its session's turn; part of `queue`
  absl::Duration upstream, queue, prefill, handoff, first_token, total;  // as in baton.v1.Timings
  absl::Duration router_queue;  // part of `queue`: until a prefill worker was given it
  bool prefilled = false;       // PrefillDone came; else its figures are zero
  KvLease context;              // what is kept of the context that it used
};

}  // namespace baton
