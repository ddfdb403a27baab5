// The outcome of a request.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "request/answers.h"
#include "request/jobs.h"
#include "request/request_stages.h"

namespace baton {

// The outcome of an ended request, for its client, the log, metrics and traces.
struct RequestOutcome {
  RequestId id;  // the client's name
  // 1 for the first request with this id. After each failure, the next request with the id has the
  // next number.
  int32_t attempt = 1;
  std::string call, tenant, model, trace_id;
  WorkerAddress prefill_worker, decode_worker;  // the last configured addresses; empty: none
  bool prefill_only = false;
  absl::Status status;
  absl::Duration retry_after;  // zero: unknown
  FinishReason finish = FinishReason::kStop;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // all with KV that this request's prefill did not compute
  int32_t shared_tokens = 0;  // part of cached_tokens: computed or copied back by another request
  int32_t completion_tokens = 0;
  // How often another decode worker went on with the output, because the one before was lost,
  // avoided or outgrown.
  int32_t resumed = 0;
  // How often the request was hedged, and how often it left an avoided worker without a hedge.
  int32_t hedged = 0, moved = 0;
  // No other decode worker has gone on yet since the last one was lost.
  bool was_resuming = false;
  // The output of a resumed request may differ from that of one decode worker, because the numerics
  // ids of its decode workers differ or contain "varying-bits".
  bool mixed_numerics = false;
  StageTimes times;
  // Since the request's arrival. `first_token` is zero without a token.
  absl::Duration first_token, total;
  // Wait for admission of the session. Included in the stages `upstream` and `queue`.
  absl::Duration session_wait;
  // Time until a prefill worker received the request. Included in the stage `queue`.
  absl::Duration router_queue;
  // True if PrefillDone arrived. Otherwise the counts of cached tokens are zero.
  bool prefilled = false;
  // The lease on the KV of the context that the request used.
  KvLease context;
};

}  // namespace baton
