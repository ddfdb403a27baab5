#include "router/room_keeper.h"

#include <algorithm>

#include "base/check.h"

namespace baton {

void RoomKeeper::Waits(Request& request, absl::Time now) {
  if (request.placement.refusals.AwaitsRoom()) next_ = std::min(next_, *request.placement.refused_at + wait_);
  const auto found = kept_.find(request.placement.room_at);
  if (found != kept_.end() && found->second.name_used) Send(request, found->second, now);
}

void RoomKeeper::Placed(Request& request, const AttachedWorker* decode, absl::Time now) {
  const auto found = kept_.find(request.placement.room_at);
  if (found == kept_.end()) return;
  if (decode == nullptr || decode->link != found->first) return Drop(request);
  if (found->second.name_used) Send(request, found->second, now);
  found->second.name_used = true;
}

void RoomKeeper::Drop(Request& request) { DropAt(WorkerAddress(request.placement.room_at)); }

void RoomKeeper::DropAt(const WorkerAddress& link) {
  if (!kept_.contains(link)) return;
  WorkerLost(link);
  actions_.push_back({.kind = RouterAction::Kind::kDropRoom, .worker = link});
}

void RoomKeeper::DropUnasked() {
  std::vector<WorkerAddress> unasked;
  for (const auto& [link, kept] : kept_) {
    if (!MayKeep(workers_.workers().at(link))) unasked.push_back(link);
  }
  for (const WorkerAddress& link : unasked) DropAt(link);
}

void RoomKeeper::WorkerLost(const WorkerAddress& link) {
  const auto found = kept_.find(link);
  if (found == kept_.end()) return;
  found->second.request->placement.room_at.clear();
  kept_.erase(found);
  next_ = absl::InfinitePast();  // the worker may keep room for another request
}

void RoomKeeper::Tick(absl::Time now) {
  if (now < next_) return;
  next_ = absl::InfiniteFuture();
  for (const Request* request : waiting_.all()) {
    const Placement& placement = request->placement;
    const absl::Time due = placement.refused_at.value_or(absl::InfiniteFuture()) + wait_;
    if (due > now) next_ = std::min(next_, due);
  }
  for (const AttachedWorker* worker : FreeWorkers()) {
    Request* request = waiting_.LongestRefusedBy(worker->link, now - wait_);
    if (request == nullptr) continue;
    request->placement.room_at = worker->link;
    Send(*request, kept_[worker->link] = {.request = request}, now);
    ++kept_total_;
  }
}

bool RoomKeeper::MayKeep(const AttachedWorker& worker) const {
  return worker.info.role == WorkerRole::kDecode && !worker.load.draining && !worker.avoided() &&
         workers_.MayBeAsked(worker);
}

// Returns the decode workers that keep no room and accept requests, those with most blocks first.
std::vector<const AttachedWorker*> RoomKeeper::FreeWorkers() const {
  std::vector<const AttachedWorker*> free;
  for (const auto& [link, worker] : workers_.workers()) {
    if (MayKeep(worker) && !kept_.contains(link)) free.push_back(&worker);
  }
  std::ranges::stable_sort(free, std::ranges::greater(), [](const AttachedWorker* worker) {
    return worker->load.blocks_free + worker->load.blocks_cached;
  });
  return free;
}

void RoomKeeper::Send(Request& request, Kept& kept, absl::Time now) {
  kept.name_used = false;
  actions_.push_back({.kind = RouterAction::Kind::kKeepRoom,
                      .request = &request,
                      .worker = request.placement.room_at,
                      .waited = now - *request.placement.refused_at});
}

void RoomKeeper::CheckInvariants(const absl::flat_hash_set<Request*>& live) const {
  const auto with_room =
      std::ranges::count_if(live, [](const Request* request) { return !request->placement.room_at.empty(); });
  BATON_CHECK(with_room == kept(), "room is kept for a request that has ended");
  for (const auto& [link, kept] : kept_) {
    const Placement& placement = kept.request->placement;
    BATON_CHECK(workers_.workers().contains(link), link);
    BATON_CHECK(placement.room_at == link, kept.request->id);
    const bool asks = placement.asks() && placement.decode == link;
    BATON_CHECK(asks || placement.state == Placement::State::kWaiting, kept.request->id);
    BATON_CHECK(asks == kept.name_used && placement.refused_at.has_value(), kept.request->id);
  }
}

}  // namespace baton
