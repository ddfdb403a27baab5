// A live request of a router, and what the router makes of it for workers, clients, logs and traces.
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
#include "request/request_stages.h"
#include "router/client_request.h"
#include "router/placement.h"
#include "router/request_outcome.h"
#include "router/session_gate.h"
#include "router/timeline.h"
#include "router/workload.h"

namespace baton {

// The owner of the request's API key. On a router without keys each cache domain counts as a tenant.
const std::string& TenantOf(const ClientRequest& request);
// The request's session. SessionGate gives turns to the tenants of sessions.
SessionKey SessionOf(const ClientRequest& request);

struct RouterAction;

// A live request. RequestTable owns it, and the machines of the router point to it.
struct Request {
  struct ById {
    bool operator()(const Request* a, const Request* b) const { return a->id < b->id; }
  };

  Request() = default;
  // Derives the id, the upstreams and, if the prompt is complete, the route. This takes time in
  // proportion to the prompt, so Router::Submit does it before it takes its lock.
  explicit Request(ClientRequest request);
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  RequestId id;         // ScopedId; `asked.id` is the client's name for it
  uint64_t number = 0;  // of its ticket; 0: it has none
  ClientRequest asked;
  // The workers' name for it, drawn when a prefill worker gets it. While workers clear up after a
  // request, its id may come again: here, by another router, or as the request itself, placed anew.
  RequestId worker_id;
  RequestStages stages{};
  absl::Time last_update{};          // from its decode worker, with tokens or without
  std::vector<RequestId> upstreams;  // of a request with a workflow

  // What each machine keeps of it.
  Placement placement{};        // RouterCore
  AgentNode node{&id, this};    // AgentGraph
  SessionGate::Part session{};  // SessionGate; empty: it has no session
  Workload::Part work{};        // Workload

  // What workers have got and answered.
  size_t sent = 0;                                    // tokens of a streaming prompt that its prefill worker has
  bool restart = false;                               // what the prefill worker has is void
  WorkerAddress placed_at, prefilled_by, decoded_by;  // links; empty: none so far
  std::optional<PrefillDone> done;
  std::optional<FinishReason> finish;
  int32_t completion_tokens = 0;

  // PrefillAhead. A shadow and a follower are requests of the router's own, without a client.
  bool shadow = false;                // it is one
  bool follower = false;              // it is one
  Request* shadow_of = nullptr;       // the live request whose shadow this is
  Request* shadow_request = nullptr;  // its own live shadow
  bool shadowed = false;              // it has or had a shadow
  std::vector<TokenId> unshadowed;    // generated, and not passed on to its shadow yet
  bool is_internal() const { return shadow || follower; }

  // REQUIRES: the core does not have it.
  void SetRoute(Route route);

  // The job for the prefill worker of this action of the core. The worker has its tokens from now on.
  PrefillJob StartPrefill(const RouterAction& action);
  PrefillAppend AppendPrompt(const RouterAction& action);
  DecodeJob StartDecode() const;  // REQUIRES: done
  // How many of the first `blocks` of its prompt its prefill worker has now. The worker need not
  // have blocks that the decode worker held. REQUIRES: done.
  size_t BlocksAt(size_t blocks) const;

  // Less retry_after and context. `status`: with which it ends now.
  RequestOutcome Outcome(const absl::Status& status, absl::Time now) const;
  RequestLife Life(RequestOutcome outcome) const;

 private:
  int32_t CachedTokens() const;  // REQUIRES: done
};

}  // namespace baton
