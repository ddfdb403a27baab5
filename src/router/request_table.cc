#include "router/request_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton {

Request& RequestTable::Add(std::unique_ptr<Request> request) {
  Request& added = *request;
  BATON_CHECK(requests_.emplace(added.id, std::move(request)).second, added.id);
  return added;
}

void RequestTable::Remove(Request& request) {
  BATON_CHECK(request.placement.state == Placement::State::kNone, request.id);
  BATON_CHECK(request.node.output == nullptr && request.node.streaming == nullptr, request.id);
  BATON_CHECK(request.session.session == nullptr && request.work.workflow == nullptr, request.id);
  BATON_CHECK(request.flow.workflow == nullptr, request.id);
  BATON_CHECK(request.shadow_request == nullptr && request.shadow_of == nullptr, request.id);
  const auto found = requests_.find(request.id);
  BATON_CHECK(found != requests_.end() && found->second.get() == &request, request.id);
  by_worker_name_.erase(request.worker_id);
  BATON_CHECK(request.former_id.empty(), request.id);
  // The map's key points into the removed request.
  const std::unique_ptr<Request> removed = std::move(found->second);
  requests_.erase(found);
}

Request* RequestTable::Find(const RequestId& id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : found->second.get();
}

Request* RequestTable::Find(const RequestTicket& ticket) const {
  Request* request = Find(ticket.id);
  return request == nullptr || request->number != ticket.number ? nullptr : request;
}

Request* RequestTable::FindByWorkerName(const RequestId& worker_id) const {
  const auto found = by_worker_name_.find(worker_id);
  return found == by_worker_name_.end() ? nullptr : found->second;
}

void RequestTable::NameForWorkers(Request& request) {
  by_worker_name_.erase(request.worker_id);
  request.worker_id = absl::StrCat(request.asked.id, "#", absl::Hex(nonce_), ".", ++names_);
  by_worker_name_.emplace(request.worker_id, &request);
}

void RequestTable::NameForPlacement(Request& request) {
  if (!std::exchange(request.named_ahead, false)) NameForWorkers(request);
}

// The map's keys point into the strings, so a string that moves is entered anew.
void RequestTable::NameHedge(Request& request) {
  BATON_CHECK(request.former_id.empty(), request.id);
  by_worker_name_.erase(request.worker_id);
  request.former_id = std::exchange(request.worker_id, {});
  by_worker_name_.emplace(request.former_id, &request);
  NameForWorkers(request);
}

void RequestTable::KeepFormer(Request& request) {
  by_worker_name_.erase(request.worker_id);
  by_worker_name_.erase(request.former_id);
  request.worker_id = std::exchange(request.former_id, {});
  by_worker_name_.emplace(request.worker_id, &request);
}

void RequestTable::ForgetFormer(Request& request) {
  by_worker_name_.erase(request.former_id);
  request.former_id.clear();
}

void RequestTable::CheckInvariants() const {
  size_t named = 0;
  for (const auto& [id, request] : requests_) {
    BATON_CHECK(id == request->id, request->id);
    for (const RequestId& name : {request->worker_id, request->former_id}) {
      named += !name.empty();
      BATON_CHECK(name.empty() || FindByWorkerName(name) == request.get(), request->id);
    }
    BATON_CHECK(request->former_id.empty() == !request->placement.former.has_value(), request->id);
  }
  BATON_CHECK(named == by_worker_name_.size(), "an ended request has a worker_id");
}

const Request* FirstUpstream(const RequestTable& requests, const ClientRequest& request) {
  for (const PromptSegment& segment : request.prompt.segments) {
    const auto* reference = std::get_if<Reference>(&segment);
    if (reference == nullptr) continue;
    const Request* upstream = requests.Find(reference->upstream);
    if (upstream != nullptr && upstream->work.workflow != nullptr) return upstream;
  }
  return nullptr;
}

}  // namespace baton
