// Prefill before a client asks for it, by internal requests: shadow prefills of sessions' outputs
// and prefill hints (internal_request.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/agent_graph.h"
#include "router/request.h"
#include "router/request_table.h"
#include "router/router_core.h"

namespace baton {

class PrefillAhead {
 public:
  struct Options {
    bool shadows = true;
    // New internal requests begin only while the router has fewer live requests than this, clients'
    // requests included.
    int32_t most_live = 0;
  };
  // REQUIRES: all arguments outlive this.
  PrefillAhead(Options options, RequestTable& requests, RouterCore& core, AgentGraph& graph)
      : options_(options), requests_(requests), core_(core), graph_(graph) {}

  // Records tokens that a session's request generated. Its shadow prefill starts with the first
  // full block, if the router has fewer than most_live live requests. It grows by whole blocks.
  void Generated(Request& request, std::span<const TokenId> tokens, absl::Time now);
  // Records that a client's request was prefilled. Cancels the shadow prefills of its session whose
  // prompts are prefixes of the request's prompt, because their KV exists now.
  void Prefilled(const Request& request);
  // Records that a request has ended. The shadow prefill of a client's request receives the
  // remaining tokens. The request itself may also be internal.
  void Ended(Request& request, absl::Time now);

  // Prefills a prompt that the client expects to submit after this call. Errors change nothing:
  // - RESOURCE_EXHAUSTED: the router has most_live live requests, the call itself waits for a
  //   worker, or the tenant has kMaxPrefillHintsPerTenant prefill hints.
  // - the errors of WorkerRegistry::Readiness, AgentGraph::Submit and RouterCore::Submit
  absl::Status AddPrefillHint(const Request& call, ClientRequest prompt, absl::Time now);

  void CheckInvariants() const;

 private:
  void Shadow(Request& request, std::span<const TokenId> tokens, bool all, absl::Time now);
  void StartShadow(Request& request, absl::Time now);
  void ForgetShadow(Request& shadow);
  absl::Status MayAddHint(const Request& call, const ClientRequest& prompt) const;
  absl::Status Enter(Request& hint, absl::Time now);

  using Shadows = absl::btree_set<Request*, Request::ById>;

  const Options options_;
  RequestTable& requests_;
  RouterCore& core_;
  AgentGraph& graph_;
  absl::flat_hash_map<SessionKey, Shadows> shadows_;  // live shadow prefills, by session
  absl::flat_hash_map<std::string, int32_t> hints_;   // live prefill hints, by tenant; never 0
};

}  // namespace baton
