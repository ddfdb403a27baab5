// What a router prefills ahead, by requests of its own that no client knows: shadows of sessions'
// outputs (shadow_prefill.h), and prompts that will follow a call (follower.h).
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
    int32_t most_live = 0;  // live requests, with those of clients, up to which new ones are added
  };
  // All outlive this.
  PrefillAhead(Options options, RequestTable& requests, RouterCore& core, AgentGraph& graph)
      : options_(options), requests_(requests), core_(core), graph_(graph) {}

  // A request of a session generated these tokens. Its shadow begins with the first block, if there
  // is room, and grows by whole blocks.
  void Generated(Request& request, std::span<const TokenId> tokens, absl::Time now);
  // A client's request is prefilled. What the shadows of its session's last turn were to prefill, this
  // turn has brought with it: they end.
  void Prefilled(const Request& request);
  // A request is over, a client's or one of these. The shadow of a client's request gets the rest of
  // its tokens.
  void Ended(Request& request, absl::Time now);

  // Prefills a prompt that a client will send after this call. Refused, with nothing changed:
  // RESOURCE_EXHAUSTED, there is no room to spare, the call itself waits, or the tenant has as many
  // followers as it may; else as WorkerRegistry::Readiness, AgentGraph and RouterCore say.
  absl::Status Follow(const Request& call, ClientRequest prompt, absl::Time now);

  void CheckInvariants() const;

 private:
  void Shadow(Request& request, std::span<const TokenId> tokens, bool all, absl::Time now);
  void StartShadow(Request& request, absl::Time now);
  void ForgetShadow(Request& shadow);
  absl::Status MayFollow(const Request& call, const ClientRequest& prompt) const;
  absl::Status Enter(Request& follower, absl::Time now);

  using Shadows = absl::btree_set<Request*, Request::ById>;

  const Options options_;
  RequestTable& requests_;
  RouterCore& core_;
  AgentGraph& graph_;
  absl::flat_hash_map<SessionKey, Shadows> shadows_;     // live ones, by session
  absl::flat_hash_map<std::string, int32_t> followers_;  // live ones, by tenant; never 0
};

}  // namespace baton
