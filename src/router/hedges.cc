#include "router/hedges.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"

namespace baton {

void Hedges::Begin(Request& request) {
  Placement& placement = request.placement;
  BATON_CHECK(placement.state == Placement::State::kPrefilling && !placement.former, request.id);
  placement.former = {.prefill = placement.prefill,
                      .decode = placement.decode,
                      .in_step = placement.in_step,
                      .moves = placement.moves,
                      .hangs = placement.hangs,
                      .refused_at = placement.refused_at};
  hedged_.insert(&request);
  assignments_.LeavePrefill(request);
  assignments_.LeaveDecode(request);
}

void Hedges::Drop(Request& request) {
  if (!request.placement.former) return;
  Placement::Former former = *std::exchange(request.placement.former, std::nullopt);
  hedged_.erase(&request);
  if (registry_.Find(former.prefill) == nullptr) former.prefill.clear();
  if (registry_.Find(former.decode) == nullptr) former.decode.clear();
  actions_.push_back({.kind = RouterAction::Kind::kDropFormer,
                      .request = &request,
                      .worker = std::move(former.prefill),
                      .decode_worker = std::move(former.decode)});
}

std::vector<Request*> Hedges::DropAt(const WorkerAddress& lost, bool left) {
  std::vector<Request*> ran;
  const std::vector<Request*> hedged(hedged_.begin(), hedged_.end());
  for (Request* request : hedged) {
    const Placement::Former& former = *request->placement.former;
    if (former.prefill != lost && former.decode != lost) continue;
    if (!left && former.prefill == lost && former.in_step) {
      ++request->placement.lost_workers;
      ran.push_back(request);
    }
    Drop(*request);
  }
  return ran;
}

int64_t Hedges::JobsAt(const WorkerAddress& worker) const {
  return std::ranges::count_if(hedged_, [&](const Request* request) {
    const Placement::Former& former = *request->placement.former;
    return former.prefill == worker || former.decode == worker;
  });
}

void Hedges::Keep(Request& request, bool refused) {
  Placement& placement = request.placement;
  const Placement::Former former = *std::exchange(placement.former, std::nullopt);
  hedged_.erase(&request);
  assignments_.ToPrefill(request, registry_.At(former.prefill));
  if (!former.decode.empty()) assignments_.ToDecode(request, registry_.At(former.decode));
  placement.in_step = former.in_step;
  if (refused) {
    placement.moves = former.moves;
    placement.hangs = former.hangs;
    placement.refused_at = former.refused_at;
    --request.hedged;
  }
  actions_.push_back({.kind = RouterAction::Kind::kKeepFormer, .request = &request, .worker = former.prefill});
}

void Hedges::CheckInvariants(const absl::flat_hash_set<Request*>& live) const {
  for (Request* request : live)
    BATON_CHECK(request->placement.former.has_value() == hedged_.contains(request), request->id);
  for (const Request* request : hedged_) {
    const Placement& placement = request->placement;
    BATON_CHECK(placement.former && placement.state == Placement::State::kPrefilling, request->id);
    BATON_CHECK(!placement.route.at_holder && placement.former->prefill != placement.prefill, request->id);
    BATON_CHECK(registry_.workers().contains(placement.former->prefill), request->id);
  }
}

}  // namespace baton
