#include "router/router_core.h"

#include <algorithm>
#include <ranges>

#include "base/check.h"
#include "base/status.h"
#include "base/strings.h"
#include "request/priority.h"

namespace baton {
namespace {

// Blocks that the router remembers of a prefill worker: as many as that can hold, but no more than take some 30 MB.
size_t RememberedBlocks(const WorkerInfo& info) {
  constexpr int64_t kMost = int64_t{1} << 18;
  return static_cast<size_t>(std::clamp<int64_t>(info.blocks_total + info.staging_blocks, 1, kMost));
}

// However short the hints and however many wait: a worker is asked again by each after this long, and by all of them
// together at most once in kRetrySpacing.
constexpr absl::Duration kShortestRetry = absl::Milliseconds(10);
constexpr absl::Duration kRetrySpacing = absl::Milliseconds(1);

}  // namespace

RouterCore::WaitingKey RouterCore::KeyOf(const Live& live) {
  return {-live.request.priority, live.request.turn, live.sequence, live.request.id};
}

AttachedWorker* RouterCore::FindWorker(const WorkerAddress& link) {
  const auto found = workers_.find(link);
  return found == workers_.end() ? nullptr : &found->second;
}

// --- workers -------------------------------------------------------------------------------------------------------

void RouterCore::WorkerAttached(const WorkerAddress& link, const WorkerInfo& info, absl::Time now) {
  BATON_CHECK(!workers_.contains(link), link);
  BATON_CHECK(MayAttach(info).ok(), link);
  AttachedWorker& worker = workers_[link];
  worker.link = link;
  worker.info = info;
  worker.load.blocks_free = info.blocks_total;  // until it says otherwise
  if (info.role == WorkerRole::kPrefill) worker.prefix_memory.emplace(RememberedBlocks(info));
  restarting_.erase(link);
  PlaceWaiting(now);
}

void RouterCore::WorkerLost(const WorkerAddress& link, absl::Time now) {
  const AttachedWorker* worker = FindWorker(link);
  if (worker == nullptr) return;
  const std::string what = absl::StrCat(worker->info.role == WorkerRole::kPrefill ? "prefill" : "decode", " worker ",
                                        link, " was lost; the request may be sent again");
  std::vector<RequestId> theirs(worker->requests.begin(), worker->requests.end());
  std::ranges::sort(theirs);
  for (const RequestId& id : worker->expected) live_.at(id).expected_at.clear();
  // Gone first: nothing is sent to it any more.
  for (const RequestId& id : theirs) {
    Live& live = live_.at(id);
    if (live.prefill == link) LeavePrefill(live);
    if (live.decode == link) LeaveDecode(live);
  }
  absl::erase_if(restarting_, [&](const auto& entry) { return entry.second.until <= now; });
  const bool left = worker->load.draining;
  if (left) restarting_[link] = {worker->info, now + limits_.restart_wait};
  workers_.erase(link);
  for (const RequestId& id : theirs) {
    Live& live = live_.at(id);
    const bool again = live.state != State::kDecoding && (left || !live.placed_again);
    if (again && live.state != State::kGrowing) {
      live.placed_again |= !left;
      live.refusals.clear();  // it waits for none of them, but for a worker, if at all
      live.refused_at.reset();
    }
    if (again || live.state == State::kGrowing) {
      PlaceOrWait(live, now);
    } else {
      End(id, absl::UnavailableError(what), limits_.retry_hint);
    }
  }
}

void RouterCore::WorkerLoaded(const WorkerAddress& link, const WorkerLoad& load) {
  if (AttachedWorker* worker = FindWorker(link)) worker->load = load;
}

// --- requests ------------------------------------------------------------------------------------------------------

absl::Status RouterCore::Submit(RouteRequest request, absl::Time now) {
  BATON_CHECK(request.prompt_tokens >= 1 || request.open, request.id);
  if (live_.contains(request.id)) {
    return absl::AlreadyExistsError(absl::StrCat("request_id: '", request.id, "' is in use by a live request"));
  }
  if (live_requests() >= limits_.live_requests) {
    return absl::ResourceExhaustedError(
        absl::StrCat("overloaded: ", live_requests(), " live requests, limit ", limits_.live_requests));
  }
  RETURN_IF_ERROR(CheckShare(request));
  const RequestId id = request.id;
  if (!MayWait(request) && !Readiness(request.model, request.prefill_only).ok()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("overloaded: ", waiting_requests(), " requests wait, limit ", limits_.waiting_requests,
                     request.tenant.empty() ? "" : ", of one tenant as many as are left for others"));
  }
  Live& live = live_[id];
  live.request = std::move(request);
  live.sequence = next_sequence_++;
  CountLive(live.request, +1);
  if (now >= live.request.deadline) {
    End(id, absl::DeadlineExceededError("the deadline had passed before the request was taken up"));
  } else if (live.request.held) {
    live.state = State::kHeld;
    Arm(live);
  } else {
    PlaceOrWait(live, now);
  }
  return absl::OkStatus();
}

void RouterCore::Admit(const RequestId& id, absl::Time now) {
  const auto found = live_.find(id);
  if (found != live_.end() && found->second.state == State::kHeld) PlaceOrWait(found->second, now);
}

void RouterCore::Cancel(const RequestId& id) { End(id, absl::CancelledError("cancelled by the client")); }

void RouterCore::SetPromptTokens(Live& live, int32_t tokens) {
  if (!live.prefill.empty() && !IsBackground(live.request.priority)) {
    const int64_t queued = std::max<int64_t>(live.queued_tokens + tokens - live.request.prompt_tokens, 0);
    workers_.at(live.prefill).prompt_tokens += queued - live.queued_tokens;
    live.queued_tokens = queued;
  }
  live.request.prompt_tokens = tokens;
}

void RouterCore::Grew(const RequestId& id, int32_t prompt_tokens) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  Live& live = found->second;
  SetPromptTokens(live, prompt_tokens);
  if (live.state != State::kGrowing) return;
  actions_.push_back({.kind = RouterAction::Kind::kAppend, .request = id, .worker = live.prefill});
}

void RouterCore::Closed(const RequestId& id, int32_t prompt_tokens, int32_t max_new_tokens, absl::Time now) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  Live& live = found->second;
  BATON_CHECK(live.request.open, id);
  SetPromptTokens(live, prompt_tokens);
  live.request.max_new_tokens = max_new_tokens;
  live.request.open = false;
  if (live.state == State::kHeld) return;
  if (live.state == State::kWaiting || live.state == State::kAtHome) {
    waiting_.erase(KeyOf(live));
    live.refusals.clear();  // of a growing prompt: whole ones may have room
    return PlaceOrWait(live, now);
  }
  live.state = State::kPrefilling;
  if (!live.request.prefill_only) {
    const AttachedWorker* decode = DecodeFor(live, workers_.at(live.prefill), DecodeCandidates(live.request.model));
    if (decode == nullptr) {
      live.refusals.clear();
      live.refused_at.reset();
      return PlaceOrWait(live, now);  // for one that comes, all anew
    }
    Expect(live, nullptr);
    GoTo(live, *decode);
  }
  actions_.push_back({.kind = RouterAction::Kind::kClose,
                      .request = id,
                      .worker = live.prefill,
                      .decode_worker = live.decode.empty() ? "" : workers_.at(live.decode).info.address});
}

void RouterCore::EndBy(const RequestId& id, absl::Time deadline) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  found->second.request.deadline = std::min(found->second.request.deadline, deadline);
  Arm(found->second);
}

bool RouterCore::PrefillDone(const WorkerAddress& link, const RequestId& id, Incarnation decode_incarnation) {
  const auto found = live_.find(id);
  if (found == live_.end() || found->second.state != State::kPrefilling || found->second.prefill != link) {
    // It ended while the commit was on its way: the decode worker holds blocks that nobody will start.
    for (const auto& [address, worker] : workers_) {
      if (worker.info.role == WorkerRole::kDecode && worker.info.incarnation == decode_incarnation) {
        actions_.push_back({.kind = RouterAction::Kind::kCancel, .request = id, .worker = address});
      }
    }
    return false;
  }
  Live& live = found->second;
  LeavePrefill(live);
  if (live.request.prefill_only) {
    End(id, absl::OkStatus());
    return true;
  }
  if (workers_.at(live.decode).info.incarnation != decode_incarnation) {
    End(id, absl::UnavailableError(absl::StrCat("decode worker ", live.decode,
                                                " restarted during the hand-off; the request may be sent again")));
    return false;
  }
  live.state = State::kStarting;
  actions_.push_back({.kind = RouterAction::Kind::kStartDecode, .request = id, .worker = live.decode});
  return true;
}

void RouterCore::Remember(const WorkerAddress& link, std::span<const BlockKey> keys) {
  if (AttachedWorker* worker = FindWorker(link)) worker->prefix_memory->Remember(keys);
}

void RouterCore::Failed(const WorkerAddress& link, const RequestId& id, const Failure& failure, absl::Time now) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  Live& live = found->second;
  const bool by_prefill = live.prefill == link;
  if (!by_prefill && live.decode != link) return;
  absl::Status reason = failure.status;
  if (reason.ok()) reason = absl::InternalError("the worker failed the request without a reason");
  if (live.state == State::kStarting && (absl::IsFailedPrecondition(reason) || absl::IsDataLoss(reason))) {
    // The hand-off did not last until Start, or its bytes did not: another one may.
    reason =
        absl::UnavailableError(StrCat("the hand-off failed: ", Message(reason), "; the request may be sent again"));
  }
  const bool growing = live.state == State::kGrowing;
  const bool cannot_hand_off = by_prefill && failure.no_room_to_decode && absl::IsUnavailable(reason);
  const WorkerAddress refuser = by_prefill && failure.no_room_to_decode ? live.decode : link;
  // It shuts down, and nothing was shown yet: as where it is lost.
  const bool leaves = (absl::IsUnavailable(reason) || absl::IsResourceExhausted(reason)) && IsDraining(refuser);
  const bool again = (absl::IsResourceExhausted(reason) || cannot_hand_off || leaves) && !live.request.at_holder &&
                     (by_prefill || live.state == State::kStarting);
  if (again) {
    const absl::Duration delay =
        std::max({failure.retry_after, kShortestRetry, (waiting_requests() + 1) * kRetrySpacing});
    LeaveOut(live, refuser, now + delay);
    LeavePrefill(live);
    LeaveDecode(live);
    if (growing) return PlaceOrWait(live, now);
    if (leaves || !live.refused_at) live.refused_at = now;
    live.last_refusal = reason;
    if (now < *live.refused_at + limits_.capacity_wait) {
      if (TryPlace(live, now)) return;
      if (MayWait(live.request)) return Wait(live, now);
    }
  }
  // The worker that failed it holds nothing of it any more.
  if (live.prefill == link) LeavePrefill(live);
  if (live.decode == link) LeaveDecode(live);
  End(id, reason, failure.retry_after);
}

bool RouterCore::TokensArrived(const WorkerAddress& link, const RequestId& id, bool finished) {
  const auto found = live_.find(id);
  if (found == live_.end() || found->second.decode != link) return false;
  Live& live = found->second;
  if (live.state != State::kStarting && live.state != State::kDecoding) return false;
  live.state = State::kDecoding;
  if (finished) {
    LeaveDecode(live);
    End(id, absl::OkStatus());
  }
  return true;
}

void RouterCore::EndAll() {
  std::vector<RequestId> ids;
  for (const auto& [id, live] : live_) ids.push_back(id);
  std::ranges::sort(ids);
  for (const RequestId& id : ids) End(id, absl::UnavailableError("the router shuts down"), limits_.retry_hint);
}

// --- placement -----------------------------------------------------------------------------------------------------

int64_t RouterCore::FewestUncached(const RouteRequest& request) const {
  int64_t fewest = request.prompt_tokens;
  for (const AttachedWorker* worker : PrefillCandidates(request, DecodeCandidates(request.model))) {
    fewest = std::min(fewest, UncachedTokens(*worker, request));
  }
  return fewest;
}

std::vector<BlockKey> RouterCore::KeysOf(const RequestId& id) const {
  const auto found = live_.find(id);
  return found == live_.end() ? std::vector<BlockKey>() : found->second.request.keys;
}

void RouterCore::LeaveOut(Live& live, const WorkerAddress& link, absl::Time until) {
  const auto known = std::ranges::find(live.refusals, link, &Refusal::link);
  if (known == live.refusals.end()) {
    live.refusals.push_back({link, until});
  } else {
    known->until = until;
  }
}

bool RouterCore::TryPlace(Live& live, absl::Time now) {
  const RouteRequest& request = live.request;
  std::erase_if(live.refusals, [&](const Refusal& refusal) { return refusal.until <= now; });
  const auto refused = [&](const AttachedWorker* worker) {
    return std::ranges::count(live.refusals, worker->link, &Refusal::link) > 0;
  };
  Candidates decodes = DecodeCandidates(request.model);
  std::erase_if(decodes, refused);
  Candidates prefills = PrefillCandidates(request, decodes);
  std::erase_if(prefills, refused);
  const AttachedWorker* prefill = ChoosePrefill(prefills, request, limits_.placement);
  if (prefill == nullptr) return false;
  const AttachedWorker* decode = request.prefill_only ? nullptr : DecodeFor(live, *prefill, std::move(decodes));
  if (decode == nullptr && !request.prefill_only && !request.open) return false;
  Place(live, *prefill, decode);
  return true;
}

// The decode worker for KV of this prefill worker; null without candidates.
const AttachedWorker* RouterCore::DecodeFor(const Live& live, const AttachedWorker& prefill, Candidates decodes) {
  std::erase_if(decodes, [&](const AttachedWorker* decode) { return !CanShareKv(prefill.info, decode->info); });
  const AttachedWorker* ahead = live.expected_at.empty() ? nullptr : FindWorker(live.expected_at);
  return ChooseDecode(decodes, live.request, ahead, limits_.placement);
}

// Null: nowhere.
void RouterCore::Expect(Live& live, const AttachedWorker* decode) {
  if (!live.expected_at.empty()) workers_.at(live.expected_at).expected.erase(live.request.id);
  live.expected_at = decode == nullptr ? "" : decode->link;
  if (decode != nullptr) workers_.at(decode->link).expected.insert(live.request.id);
}

void RouterCore::GoTo(Live& live, const AttachedWorker& decode) {
  live.decode = decode.link;
  workers_.at(decode.link).requests.insert(live.request.id);
}

void RouterCore::Place(Live& live, const AttachedWorker& prefill, const AttachedWorker* decode) {
  const RouteRequest& request = live.request;
  waiting_.erase(KeyOf(live));
  live.state = request.open ? State::kGrowing : State::kPrefilling;
  AttachedWorker& prefill_worker = workers_.at(prefill.link);
  live.prefill = prefill.link;
  prefill_worker.requests.insert(request.id);
  live.queued_tokens = IsBackground(request.priority) ? 0 : UncachedTokens(prefill_worker, request);
  prefill_worker.prompt_tokens += live.queued_tokens;
  prefill_worker.prefix_memory->UnderWay(request.keys);
  if (request.open) {
    Expect(live, decode);
  } else if (decode != nullptr) {
    GoTo(live, *decode);
  }
  actions_.push_back({.kind = RouterAction::Kind::kStartPrefill,
                      .request = request.id,
                      .worker = prefill.link,
                      .decode_worker = decode == nullptr ? "" : decode->info.address,
                      .open = request.open});
  Arm(live);
}

void RouterCore::PlaceWaiting(absl::Time now) {
  for (const RequestId& id : WaitingInTurn()) {
    Live& live = live_.at(id);
    if (TryPlace(live, now)) NoteTurn(live.request.tenant);
  }
}

// What its workers, if they are still there, have of it is forgotten.
void RouterCore::PlaceOrWait(Live& live, absl::Time now) {
  for (const WorkerAddress& link : {live.prefill, live.decode}) {
    if (link.empty()) continue;
    actions_.push_back({.kind = RouterAction::Kind::kCancel, .request = live.request.id, .worker = link});
  }
  LeavePrefill(live);
  LeaveDecode(live);
  if (TryPlace(live, now)) return;
  if (!live.request.at_holder && !IsBackground(live.request.priority)) return Wait(live, now);
  const RequestId id = live.request.id;
  End(id, absl::UnavailableError("no prefill worker takes what is done in the background"));
}

void RouterCore::Wait(Live& live, absl::Time now) {
  live.reason = Readiness(live.request.model, live.request.prefill_only);
  if (live.reason.ok() && live.request.open) {
    waiting_.erase(KeyOf(live));
    live.state = State::kAtHome;
    return Arm(live);
  }
  if (live.reason.ok()) {
    live.reason = live.last_refusal;
    live.give_up = *live.refused_at + limits_.capacity_wait;
  } else {
    // Also one that its workers refused and left since: it waits for others like a new request.
    live.give_up = now + limits_.worker_wait;
    if (live.refused_at) live.give_up = std::min(live.give_up, *live.refused_at + limits_.capacity_wait);
    live.give_up = std::max(live.give_up, AwaitedUntil(live.request.model, live.request.prefill_only));
  }
  live.state = State::kWaiting;
  waiting_.insert(KeyOf(live));
  Arm(live);
}

// --- ends ----------------------------------------------------------------------------------------------------------

void RouterCore::LeavePrefill(Live& live) {
  if (live.prefill.empty()) return;
  Expect(live, nullptr);
  AttachedWorker& worker = workers_.at(std::exchange(live.prefill, {}));
  worker.requests.erase(live.request.id);
  worker.prompt_tokens -= live.queued_tokens;
  worker.prefix_memory->Left(live.request.keys);
}

void RouterCore::LeaveDecode(Live& live) {
  if (live.decode.empty()) return;
  workers_.at(std::exchange(live.decode, {})).requests.erase(live.request.id);
}

void RouterCore::End(const RequestId& id, const absl::Status& status, absl::Duration retry_after) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  Live& live = found->second;
  for (const WorkerAddress& link : {live.prefill, live.decode}) {
    if (!link.empty()) actions_.push_back({.kind = RouterAction::Kind::kCancel, .request = id, .worker = link});
  }
  LeavePrefill(live);
  LeaveDecode(live);
  waiting_.erase(KeyOf(live));
  CountLive(live.request, -1);
  timers_.erase({live.timer, id});
  actions_.push_back({.kind = RouterAction::Kind::kEnd, .request = id, .status = status, .retry_after = retry_after});
  live_.erase(found);
}

// --- time ----------------------------------------------------------------------------------------------------------

void RouterCore::Arm(Live& live) {
  timers_.erase({live.timer, live.request.id});
  live.timer = live.request.deadline;
  if (live.state == State::kWaiting) {
    live.timer = std::min(live.timer, live.give_up);
    // What waits for a worker is placed when that attaches; what waits for room tries again by itself.
    for (const Refusal& refusal : live.refusals) live.timer = std::min(live.timer, refusal.until);
  }
  if (live.timer != absl::InfiniteFuture()) timers_.insert({live.timer, live.request.id});
}

absl::Time RouterCore::NextTick() const { return timers_.empty() ? absl::InfiniteFuture() : timers_.begin()->first; }

void RouterCore::Tick(absl::Time now) {
  EndOverdue(now);
  while (!timers_.empty() && timers_.begin()->first <= now) {
    PlaceOrWait(FirstToAsk(live_.at(timers_.begin()->second), now), now);
  }
}

void RouterCore::EndOverdue(absl::Time now) {
  std::vector<RequestId> due;
  for (auto timer = timers_.begin(); timer != timers_.end() && timer->first <= now; ++timer)
    due.push_back(timer->second);
  for (const RequestId& id : due) {
    Live& live = live_.at(id);
    if (now >= live.request.deadline) {
      End(id, absl::DeadlineExceededError("the deadline passed"));
    } else if (now < live.give_up) {
      continue;
    } else if (std::ranges::any_of(live.refusals, [&](const Refusal& refusal) { return IsDraining(refusal.link); })) {
      live.refused_at = now;  // the wait for room begins when it has gone
      live.give_up = now + limits_.capacity_wait;
      Arm(live);
    } else {
      End(id, live.reason, limits_.retry_hint);
    }
  }
}

// Hints say when a worker may be asked, not by whom: the first of those that wait for the worker takes the hint that
// has passed, and leaves its own.
RouterCore::Live& RouterCore::FirstToAsk(Live& live, absl::Time now) {
  for (Refusal& refusal : live.refusals) {
    if (refusal.until > now) continue;
    Live* first = FirstWaitingFor(refusal.link);
    if (first == nullptr || first == &live) continue;
    std::swap(std::ranges::find(first->refusals, refusal.link, &Refusal::link)->until, refusal.until);
    Arm(live);
    NoteTurn(first->request.tenant);
    return *first;
  }
  NoteTurn(live.request.tenant);
  return live;
}

void RouterCore::CheckInvariants() const {
  for (const auto& [link, left] : restarting_) BATON_CHECK(!workers_.contains(link), link);
  absl::flat_hash_map<WorkerAddress, int64_t> requests, prompt_tokens, blocks;
  size_t waiting = 0, timers = 0, expected = 0;
  absl::flat_hash_map<std::string, int32_t> of_tenants;
  for (const auto& [id, live] : live_) {
    BATON_CHECK(live.request.id == id, id);
    if (tenants_.contains(live.request.tenant)) of_tenants[live.request.tenant] += !IsBackground(live.request.priority);
    BATON_CHECK((live.state == State::kWaiting) == waiting_.contains(KeyOf(live)), id);
    const bool growing = live.state == State::kGrowing;
    BATON_CHECK((growing || live.state == State::kPrefilling) == !live.prefill.empty(), id);
    const bool either = live.state == State::kHeld || live.state == State::kWaiting;
    const bool unplaced = either || live.state == State::kAtHome;
    BATON_CHECK((growing || unplaced || live.request.prefill_only) == live.decode.empty(), id);
    BATON_CHECK(!live.request.at_holder || live.state == State::kHeld || live.prefill == live.request.holder, id);
    BATON_CHECK(either || (growing || live.state == State::kAtHome) == live.request.open, id);
    waiting += live.state == State::kWaiting;
    if (live.timer != absl::InfiniteFuture()) {
      ++timers;
      BATON_CHECK(timers_.contains({live.timer, id}), id);
    }
    for (const WorkerAddress& link : {live.prefill, live.decode}) {
      if (link.empty()) continue;
      BATON_CHECK(workers_.contains(link) && workers_.at(link).requests.contains(id), id);
      ++requests[link];
    }
    if (!live.prefill.empty()) {
      prompt_tokens[live.prefill] += live.queued_tokens;
      blocks[live.prefill] += std::ssize(live.request.keys);
    }
    BATON_CHECK(growing || live.expected_at.empty(), id);
    if (!live.expected_at.empty()) BATON_CHECK(workers_.at(live.expected_at).expected.contains(id), id);
    expected += !live.expected_at.empty();
  }
  BATON_CHECK(waiting == waiting_.size() && timers == timers_.size(), "a request that is over still waits");
  for (const auto& [link, worker] : workers_) {
    BATON_CHECK(static_cast<int64_t>(worker.requests.size()) == requests[link], link);
    BATON_CHECK(worker.prompt_tokens == prompt_tokens[link], link);
    BATON_CHECK(!worker.prefix_memory || worker.prefix_memory->under_way() == blocks[link], link);
    expected -= worker.expected.size();
  }
  for (const auto& [tenant, use] : tenants_) BATON_CHECK(use.live == of_tenants[tenant], tenant);
  BATON_CHECK(expected == 0, "a worker expects requests that do not know it");
}

}  // namespace baton
