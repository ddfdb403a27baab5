// RouterCore and AgentGraph joined as server/router.cc joins them, between a simulated network's ends. It leaves out
// what simulations do not use: metrics, limits of prompts, reports of load.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/agent_graph.h"
#include "engine/request.h"
#include "router/router_core.h"
#include "simulator/workers.h"

namespace baton {

struct SimulatedRequest {
  RequestId id{};
  std::string model{};
  std::string cache_salt{};
  std::vector<PromptSegment> segments{};
  Join join = Join::kOrder;
  int32_t max_tokens = 0;
  std::vector<std::string> stop{};
};

class SimulatedRouter {
 public:
  // Towards workers and clients, by the network.
  struct Outlets {
    std::function<void(const WorkerAddress& to, PrefillJob)> prefill;
    std::function<void(const WorkerAddress& to, PrefillAppend)> append;
    std::function<void(const WorkerAddress& to, DecodeJob)> decode;
    std::function<void(const WorkerAddress& to, const RequestId&)> cancel;
    std::function<void(const RequestId&, std::vector<TokenId>)> tokens;
    std::function<void(const RequestId&, absl::Status)> end;
  };
  SimulatedRouter(const Tokenizer& tokenizer, int64_t context, Outlets outlets, const EventQueue& queue)
      : tokenizer_(tokenizer), context_(context), outlets_(std::move(outlets)), queue_(queue) {}

  void Attach(const WorkerAddress& worker, const WorkerInfo& info);
  void OnLost(const WorkerAddress& worker);
  // Messages that have arrived. A request that is refused ends at once.
  void Submit(SimulatedRequest request);
  void Cancel(const RequestId& id);
  void OnPrefillDone(const WorkerAddress& from, const PrefillDone& done);
  void OnFailed(const WorkerAddress& from, const RequestFailed& failed);
  void OnEvents(const WorkerAddress& from, DecodeEvents events);
  void Tick();
  absl::Time NextTick() const { return std::min(core_.NextTick(), graph_.NextTick()); }

  void CheckInvariants() const;

 private:
  struct Record {
    SimulatedRequest request;
    std::vector<TokenId> tokens;  // of the prompt, as far as known
    bool open = false;
    size_t sent = 0;  // of an open prompt, to its prefill worker
    bool restart = false;
    PrefillDone done;
  };

  absl::Status Enter(const RequestId& id, Record& record);
  RouteRequest RouteOf(const Record& record) const;
  void Act();
  void Act(const RouterAction& action);
  void Act(PromptGrew& grew);
  void Act(PromptRestarted& restarted);
  void Act(PromptFailed& failed) { core_.Fail(failed.id, failed.status); }
  void StartPrefill(const RouterAction& action);
  void AppendPrompt(const RouterAction& action);
  void StartDecode(const RouterAction& action);
  void End(const RouterAction& action);

  const Tokenizer& tokenizer_;
  const int64_t context_;
  Outlets outlets_;
  const EventQueue& queue_;
  RouterCore core_{RouterLimits{}};
  AgentGraph graph_{AgentLimits{}};
  std::map<RequestId, Record> records_;
};

}  // namespace baton
