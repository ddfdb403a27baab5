#include "simulator/router.h"

#include <memory>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/status.h"

namespace baton {

void SimulatedRouter::Attach(const WorkerAddress& worker, const WorkerInfo& info) {
  dispatcher_.WorkerAttached(worker, info, queue_.Now());
  Act();
}

void SimulatedRouter::OnLost(const WorkerAddress& worker) {
  dispatcher_.WorkerLost(worker, queue_.Now());
  Act();
}

ClientRequest SimulatedRouter::ToClientRequest(SimulatedRequest request) const {
  const auto served = models_.Find(request.model);
  BATON_CHECK(served.ok(), request.model);
  ClientRequest read;
  // A router builds scoped ids with a slash (see ScopedId).
  BATON_CHECK(request.id.find('/') == std::string::npos, request.id);
  read.id = std::move(request.id);
  read.served = *served;
  read.session = std::move(request.session);
  read.spec.cache_domain = std::move(request.cache_domain);
  read.most_requests = request.max_requests;
  read.prompt.segments = std::move(request.segments);
  read.prompt.join = request.join;
  read.prompt.first = request.first;
  read.keep = request.keep;
  read.spec.tenant = std::move(request.tenant);
  read.spec.sampling.draw.temperature = request.temperature;
  if (request.temperature > 0) read.spec.sampling.seed = request.seed;
  read.spec.sampling.max_tokens = request.max_tokens;
  if (request.scores) read.spec.sampling.prompt_logprobs = 0;
  read.spec.sampling.ignore_eos = true;
  read.spec.sampling.stop = std::move(request.stop);
  read.has_max_tokens = request.max_tokens > 0;
  read.workflow = std::move(request.workflow);
  read.agent = std::move(request.agent);
  read.expected_tokens = request.expected_tokens;
  read.deadline = queue_.Now() + request.timeout;
  read.workflow_limits = request.workflow_limits;
  return read;
}

void SimulatedRouter::Submit(SimulatedRequest request) {
  const RequestId id = request.id;
  const auto ticket = dispatcher_.Submit(std::make_unique<Request>(ToClientRequest(std::move(request))), queue_.Now());
  if (ticket.ok()) {
    tickets_[id] = *ticket;
  } else {
    RequestOutcome refused;
    refused.status = ticket.status();
    outlets_.end(id, refused);
  }
  Act();
}

void SimulatedRouter::Cancel(const RequestId& id) {
  const auto ticket = tickets_.find(id);
  if (ticket == tickets_.end()) return;
  dispatcher_.Cancel(RequestTicket(ticket->second), queue_.Now());
  Act();
}

void SimulatedRouter::CancelWorkflow(const WorkflowKey& workflow) {
  dispatcher_.CancelWorkflow(workflow, queue_.Now());
  Act();
}

absl::Status SimulatedRouter::Put(const SimulatedPart& part) {
  const absl::Time now = queue_.Now();
  const auto put = [&](Values& values) -> absl::Status {
    auto value = values_.find(part.id);
    if (value == values_.end()) {
      ASSIGN_OR_RETURN(ValueTicket ticket, values.Begin({.id = ScopedId(part.cache_domain, part.id),
                                                         .cache_domain = part.cache_domain,
                                                         .agent = part.agent},
                                                        nullptr, now));
      value = values_.emplace(part.id, std::move(ticket)).first;
    }
    const ValueTicket ticket = value->second;
    if (part.last) values_.erase(value);
    RETURN_IF_ERROR(values.AppendText(ticket, part.text, now));
    if (part.last) values.End(ticket, part.status, now);
    return absl::OkStatus();
  };
  absl::Status status = dispatcher_.ChangeValues(put, now);
  if (!status.ok()) values_.erase(part.id);
  Act();
  return status;
}

void SimulatedRouter::OnLoad(const WorkerAddress& from, const WorkerLoad& load) {
  dispatcher_.Reported(from, load, queue_.Now());
  Act();
}

void SimulatedRouter::OnPrefillDone(const WorkerAddress& from, const PrefillDone& done) {
  dispatcher_.Reported(from, done, queue_.Now());
  Act();
}

void SimulatedRouter::OnFailed(const WorkerAddress& from, const RequestFailed& failed) {
  dispatcher_.Reported(from, failed, queue_.Now());
  Act();
}

void SimulatedRouter::OnStarted(const WorkerAddress& from, const PrefillStarted& started) {
  dispatcher_.Reported(from, started, queue_.Now());
  Act();
}

void SimulatedRouter::OnUpdates(const WorkerAddress& from, std::vector<TokenUpdate> updates) {
  for (TokenUpdate& update : updates) dispatcher_.Reported(from, std::move(update), queue_.Now());
  Act();
}

void SimulatedRouter::OnRoom(const WorkerAddress& from, const RoomReport& report) {
  dispatcher_.Reported(from, report, queue_.Now());
  Act();
}

void SimulatedRouter::Tick() {
  dispatcher_.Tick(queue_.Now());
  Act();
}

void SimulatedRouter::Act() {
  for (DispatchAction& action : dispatcher_.TakeActions()) {
    if (auto* command = std::get_if<WorkerCommand>(&action)) {
      outlets_.command(std::move(*command));
    } else if (auto* progress = std::get_if<RequestProgress>(&action)) {
      outlets_.tokens(NameOf(progress->update.request_id), std::move(progress->update.tokens));
    } else if (const auto* end = std::get_if<RequestEnded>(&action)) {
      const RequestEnded& ended = *end;
      const RequestId id = NameOf(ended.ticket.id);
      tickets_.erase(id);
      outlets_.end(id, ended.outcome);
    }
  }
}

}  // namespace baton
