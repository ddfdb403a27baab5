// What a router remembers of a live request, beside what RouterCore does, and what is made of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "request/answers.h"
#include "request/jobs.h"
#include "router/client_request.h"
#include "router/router_core.h"
#include "router/session_gate.h"
#include "router/timeline.h"

namespace baton {

// How a request went, for its client.
struct RequestOutcome {
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
  bool prefilled = false;       // a prefill worker has told of it; else what it would tell is zero
  KvLease context;              // what is kept of the context that it used
};

// Who took part in a request, for logs and metrics.
struct RequestParties {
  RequestId id;  // its client's name for it
  std::string call, tenant, model, trace_id;
  WorkerAddress prefill_worker, decode_worker;  // links that had it last; empty: none
  bool prefill_only = false;
};

// Whose it is: without keys, whoever has a salt of his own is a tenant.
const std::string& TenantOf(const ClientRequest& request);
// Turns go to tenants.
SessionKey SessionOf(const ClientRequest& request);

struct RequestRecord {
  RequestId id;  // ScopedId: what RouterCore and its like call it; `request.id` is its client's name for it
  ClientRequest request;
  uint64_t number = 0;  // of its ticket
  // What workers call it, drawn when a prefill worker is told: while they clear up after a request, its id may come
  // again, here or by another router, or the request itself, placed anew.
  RequestId worker_id;
  absl::Time arrived;
  absl::Time complete;  // the prompt
  absl::Time last_update;
  absl::Time placed = absl::InfiniteFuture(), prefilled = absl::InfiniteFuture();  // as in RequestLife
  std::vector<RequestId> upstreams;                                                // of a request with a workflow
  size_t sent = 0;       // tokens of a growing prompt that its prefill worker has
  bool restart = false;  // what it has is void
  bool held = false;     // its session waits for its turn
  absl::Duration session_wait, queue, first_token;
  std::optional<PrefillDone> done;
  WorkerAddress placed_at, prefilled_by, decoded_by;
  std::optional<FinishReason> finish;
  int32_t completion_tokens = 0;
  // Shadow prefill (shadow_prefill.h):
  bool shadow = false;                                 // this is one, and no client's
  bool shadowed = false;                               // it has one, or had
  std::vector<TokenId> unshadowed;                     // generated, and not passed on to it yet
  bool follower = false;                               // this is one (follower.h), and no client's
  bool unheard() const { return shadow || follower; }  // nobody is told of it

  // What the prefill worker is told for this action of the core, and has then.
  PrefillJob StartPrefill(const RouterAction& action);
  PrefillAppend AppendPrompt(const RouterAction& action);
  DecodeJob StartDecode() const;  // REQUIRES: done
  // Of these first blocks of its prompt, those that its prefill worker has now: what the decode worker held it need not
  // have. REQUIRES: done.
  size_t BlocksAt(size_t blocks) const;

  // Less retry_after and context. `status`: with which it ends now.
  RequestOutcome Outcome(const absl::Status& status, absl::Time now) const;
  RequestParties Parties() const;
  RequestLife Life() const;  // so far

 private:
  int32_t CachedTokens() const;  // REQUIRES: done
};

}  // namespace baton
