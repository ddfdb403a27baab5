// The router in virtual time. It drives the Dispatcher like shell/router.cc, but over a simulated
// network.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/served_model.h"
#include "request/answers.h"
#include "router/dispatcher.h"
#include "simulator/workers.h"

namespace baton {

struct SimulatedRequest {
  RequestId id{};
  std::string model{};
  std::string session{};  // empty for none
  std::string cache_domain{};
  std::string tenant{};
  int32_t max_requests = 0;  // the tenant's quota; 0 for none
  std::vector<PromptSegment> segments{};
  Join join = Join::kOrder;
  int32_t first = 0;       // PromptSpec::first
  bool keep = false;       // ClientRequest::keep
  int32_t max_tokens = 0;  // 0: no limit
  std::vector<std::string> stop{};
  // 0: the tokens with the highest logits. Otherwise, tokens drawn with `seed`.
  float temperature = 0;
  uint64_t seed = 0;
  bool scores = false;              // wants log probabilities of its prompt
  std::string workflow{}, agent{};  // empty for none
  // Expected tokens of the output. 0 if unknown.
  int32_t expected_tokens = 0;
  absl::Duration timeout = absl::InfiniteDuration();  // counted from the arrival at the router
  WorkflowLimits workflow_limits{};
};

// A part of a value. The first part with an id begins the value.
struct SimulatedPart {
  RequestId id{};
  std::string cache_domain{}, agent{};  // of the first part
  std::string text{};                   // letters of LetterTokenizer
  bool last = true;                     // whether the value ends with `status`
  absl::Status status{};
};

class SimulatedRouter {
 public:
  // Outgoing messages to workers and clients, over the network.
  struct Outlets {
    std::function<void(WorkerCommand)> command;
    std::function<void(const RequestId&, std::vector<TokenId>)> tokens;
    std::function<void(const RequestId&, const RequestOutcome&)> end;
  };
  // `models` are the models that requests may name.
  SimulatedRouter(std::vector<ServedModel> models, Dispatcher::Options options, Outlets outlets,
                  const EventQueue& queue)
      : models_(std::move(models)), dispatcher_(std::move(options)), outlets_(std::move(outlets)), queue_(queue) {}

  void Attach(const WorkerAddress& worker, const WorkerInfo& info);
  void OnLost(const WorkerAddress& worker);
  // Handlers of incoming messages. A refused request ends at once.
  void Submit(SimulatedRequest request);
  void Cancel(const RequestId& id);
  void CancelWorkflow(const WorkflowKey& workflow);
  // Returns the errors of Values.
  absl::Status Put(const SimulatedPart& part);
  void OnLoad(const WorkerAddress& from, const WorkerLoad& load);
  void OnPrefillDone(const WorkerAddress& from, const PrefillDone& done);
  void OnFailed(const WorkerAddress& from, const RequestFailed& failed);
  void OnStarted(const WorkerAddress& from, const PrefillStarted& started);
  void OnUpdates(const WorkerAddress& from, std::vector<TokenUpdate> updates);
  void OnRoom(const WorkerAddress& from, const RoomReport& report);
  void Tick();
  absl::Time NextTick() const { return dispatcher_.NextTick(); }

  const RouterCore& core() const { return dispatcher_.core(); }
  AgentGraph::Counts graph() const { return dispatcher_.graph().counts(); }
  SessionGate::Counts sessions() const { return SessionsOf(dispatcher_); }
  void CheckInvariants() const { dispatcher_.CheckInvariants(); }

 private:
  ClientRequest ToClientRequest(SimulatedRequest request) const;
  void Act();

  const ServedModels models_;
  Dispatcher dispatcher_;
  std::map<RequestId, RequestTicket> tickets_;  // of live requests
  std::map<RequestId, ValueTicket> values_;     // of values that have begun and not ended
  Outlets outlets_;
  const EventQueue& queue_;
};

}  // namespace baton
