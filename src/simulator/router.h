// The router in virtual time: drives Dispatcher as shell/router.cc does, between a simulated network's ends.
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
  std::string session{};  // empty: none
  std::string cache_domain{};
  std::vector<PromptSegment> segments{};
  Join join = Join::kOrder;
  int32_t max_tokens = 0;
  std::vector<std::string> stop{};
  std::string workflow{}, agent{};  // empty: none
  int32_t expected_tokens = 0;      // of the output; 0: not known
};

class SimulatedRouter {
 public:
  // Towards workers and clients, by the network.
  struct Outlets {
    std::function<void(WorkerCommand)> command;
    std::function<void(const RequestId&, std::vector<TokenId>)> tokens;
    std::function<void(const RequestId&, const RequestOutcome&)> end;
  };
  // `models`: that requests name.
  SimulatedRouter(std::vector<ServedModel> models, Dispatcher::Options options, Outlets outlets,
                  const EventQueue& queue)
      : models_(std::move(models)), dispatcher_(std::move(options)), outlets_(std::move(outlets)), queue_(queue) {}

  void Attach(const WorkerAddress& worker, const WorkerInfo& info);
  void OnLost(const WorkerAddress& worker);
  // Messages that have arrived. A request that is refused ends at once.
  void Submit(SimulatedRequest request);
  void Cancel(const RequestId& id);
  void OnPrefillDone(const WorkerAddress& from, const PrefillDone& done);
  void OnFailed(const WorkerAddress& from, const RequestFailed& failed);
  void OnEvents(const WorkerAddress& from, DecodeEvents events);
  void Tick();
  absl::Time NextTick() const { return dispatcher_.NextTick(); }

  SessionGate::Counts sessions() const { return dispatcher_.sessions(); }
  void CheckInvariants() const { dispatcher_.CheckInvariants(); }

 private:
  ClientRequest Read(SimulatedRequest request) const;
  void Act();

  const ServedModels models_;
  Dispatcher dispatcher_;
  std::map<RequestId, RequestTicket> tickets_;  // of live requests
  Outlets outlets_;
  const EventQueue& queue_;
};

}  // namespace baton
