// A live request of a router, and its representations for workers, clients, logs and traces.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/agent_graph.h"
#include "request/answers.h"
#include "request/jobs.h"
#include "request/priority.h"
#include "request/refused_requests.h"
#include "request/request_outcome.h"
#include "request/request_stages.h"
#include "request/timeline.h"
#include "router/client_request.h"
#include "router/placement.h"
#include "router/session_gate.h"
#include "router/workload.h"
#include "tenants/request_slots.h"
#include "tenants/workflows.h"

namespace baton {

// Returns the owner of the request's API key. On a router without keys, each cache domain counts as
// a tenant.
const std::string& TenantOf(const ClientRequest& request);
// Returns the request as a refused one. `retry_after` is the delay that the client receives.
RefusedRequest AsRefused(const ClientRequest& request, const absl::Status& status, absl::Duration retry_after = {});
// Returns the request's session under its tenant. SessionGate admits sessions tenant by tenant.
SessionKey SessionOf(const ClientRequest& request);

// A decode worker should have room for this many times the expected output. If the lengths of
// outputs are exponentially distributed, one output in 55 outgrows its worker.
inline constexpr int64_t kRoomPerExpected = 4;

struct RouterAction;

// The tokens that a client's request is charged for by now. The router sends them as the tokens of
// a streaming prompt become known. It sends them again once the prompt is complete and the request
// has a slot (RequestSlots), if the prompt had references or a context, or its session waited.
struct RequestCharge {
  uint64_t number = 0;  // of the request's ticket
  int64_t prompt_tokens = 0;
  int64_t expected_tokens = 0;  // of the output; 0 until the prompt is complete and has a slot
};

// A live request. RequestTable owns it, and the state machines of the router (core, graph, gate,
// workload) point to it.
struct Request {
  struct ById {
    bool operator()(const Request* a, const Request* b) const { return a->id < b->id; }
  };

  Request() = default;
  // Derives the id and the upstream requests. Hashes the prompt up to its first reference, and sets
  // the route of a complete prompt. `first` is that of RouterKeys. This takes time in proportion to
  // the prompt and needs no other state, so Router::Submit does it before it takes its lock.
  explicit Request(ClientRequest request, std::vector<BlockKey> first = {});
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  RequestId id;         // a ScopedId; `asked.id` is the client's name
  uint64_t number = 0;  // of its ticket; 0: it has no ticket
  ClientRequest asked;
  // The workers' name for the request. The router draws a new name at each placement, because
  // workers may still be clearing up a request with the same id. That request may have ended, may
  // belong to another router, or may be this one before it was placed again.
  RequestId worker_id;
  bool named_ahead = false;  // worker_id is the name for the next placement (KeepRoom)
  // The workers' name for the job at Placement::former. Empty if there is none.
  RequestId former_id;
  RequestStages stages{};
  // Time of the last update from the decode worker, with or without tokens.
  absl::Time last_update{};
  std::vector<RequestId> upstreams;  // empty without a workflow

  // The machines' own parts.
  Placement placement{};  // RouterCore
  // Number of the route's first keys that no upstream request can change.
  size_t fixed_keys = 0;
  RequestSlots::Part slot{this};            // RequestSlots
  AgentNode node{&id, this, &asked.agent};  // AgentGraph
  SessionGate::Part session{};              // SessionGate; empty: no session
  Workload::Part work{};                    // Workload
  Workflows::Part flow{&node};              // Workflows

  // The jobs and answers of workers.

  // Number of prompt tokens that were sent to the prefill worker.
  size_t sent = 0;
  // Whether the tokens that were sent are void, and the next increment restarts the prompt.
  bool restart = false;
  // Configured addresses of workers. Empty until a worker has the request.
  WorkerAddress placed_at, prefilled_by, decoded_by;
  std::optional<PrefillDone> done;
  std::optional<FinishReason> finish;
  int32_t completion_tokens = 0;

  // The state that a request needs to go on at another decode worker.

  std::vector<TokenId> output;  // all that decode workers have sent; empty for internal requests
  bool resuming = false;        // a decode worker was lost since the last token
  int32_t resumed = 0;          // how often another decode worker went on with the output
  // How often the request was hedged, and how often it left an avoided worker without a hedge.
  int32_t hedged = 0, moved = 0;
  // The first `done` of a resumed request. Usage counts this one.
  std::optional<PrefillDone> first_done;
  // The numerics ids of the last prefill worker and decode worker. Empty until a decode worker has
  // the request.
  std::string numerics_id;
  // Whether decode workers with other numerics, or with varying bits, made parts of the output.
  bool mixed_numerics = false;

  // PrefillAhead's part. Shadow prefills and prefill hints are internal requests, without a client.

  // Whether the request is a shadow prefill.
  bool shadow = false;
  // Whether the request is a prefill hint.
  bool prefill_hint = false;
  Request* shadow_of = nullptr;       // a shadow prefill: the live request that generates
  Request* shadow_request = nullptr;  // the request's own live shadow prefill
  // Whether the request has or had a shadow prefill.
  bool shadowed = false;
  // Generated tokens that its shadow prefill has not received yet.
  std::vector<TokenId> unshadowed;
  bool is_internal() const { return shadow || prefill_hint; }
  RequestCharge charge() const;

  // REQUIRES: RouterCore does not have the request.
  void SetRoute(Route route);
  // Returns the router keys of the prompt's blocks before its first reference.
  std::vector<BlockKey> FixedKeys() const;
  // Returns the router keys of all tokens so far. The route has those of an earlier time, and an
  // upstream request that failed may have voided the tokens of the last ones.
  std::vector<BlockKey> CurrentKeys() const;

  // Returns whether the request may wait for a worker after it was placed.
  bool may_wait() const { return !placement.route.at_holder && !IsLowPriority(asked.spec.priority); }
  // Returns the number of tokens of prompt and output so far.
  int64_t tokens_so_far() const { return std::ssize(asked.spec.tokens) + completion_tokens; }
  // Returns how many tokens of prompt and output a decode worker should be able to hold. The
  // client's own max_tokens counts whole. A default counts up to kRoomPerExpected times the
  // expected length only, if the request may move when its output grows longer.
  int64_t TokensToHold() const;
  // Returns how many tokens of KV the prompt and the client's own max_tokens need at the end. 0 if
  // the client set none, or if the output has begun, which goes on as far as it can.
  int64_t KvTokensAsked() const;
  // Returns how many more tokens the output is expected to have.
  int32_t ExpectedTokensLeft() const;
  // Makes the output part of the prompt that is placed next.
  void ExtendByOutput();

  // Returns the job for the prefill worker of a kStartPrefill action. All tokens so far then count
  // as sent.
  PrefillJob StartPrefill(const RouterAction& action);
  // Returns the increment for the prefill worker of a kAppend or kClose action. All tokens so far
  // then count as sent.
  PrefillAppend AppendPrompt(const RouterAction& action);
  // Without `done`, the job has no hand-off, and the decode worker computes the prompt.
  DecodeJob StartDecode() const;
  // Takes the numerics ids of the workers that compute the prompt and the output.
  void NoteNumerics(std::string now);
  // Returns INVALID_ARGUMENT if the update lacks log probabilities that the request wants.
  absl::Status CheckLogprobs(const TokenUpdate& update) const;
  // Returns the message for the decode worker of a kKeepRoom action.
  KeepRoom AskForRoom(const RouterAction& action) const;
  // Returns how many of the prompt's first `blocks` blocks its prefill worker has now. The worker
  // may lack blocks that the decode worker held already. REQUIRES: `done` is set.
  size_t BlocksAt(size_t blocks) const;

  // Returns the outcome of a request that ends now with `status`. The caller sets retry_after and
  // context.
  RequestOutcome Outcome(const absl::Status& status, absl::Time now) const;
  RequestLife Life(RequestOutcome outcome) const;
  // Returns the status with which the request ended for the requests that depend on it.
  absl::Status ForDownstreams(const absl::Status& status) const;

 private:
  // Returns the PrefillDone that usage counts.
  const std::optional<PrefillDone>& counted() const { return first_done ? first_done : done; }
};

}  // namespace baton
