#include "router/router_core.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "base/strings.h"
#include "router/wait_state.h"

namespace baton {
namespace {
using State = Placement::State;
}  // namespace

RouterCore::RouterCore(const RouterLimits& limits)
    : limits_(limits),
      registry_(limits.restart_wait),
      watch_(limits.watch),
      choice_(registry_, limits.placement),
      slots_({.slots = limits.live_requests,
              .waiting = limits.waiting_prompts > 0 ? limits.waiting_prompts : 4 * limits.live_requests}),
      waiting_(limits.waiting_requests, tenants_) {}

// --- workers -------------------------------------------------------------------------------------

void RouterCore::WorkerAttached(const WorkerAddress& link, const WorkerInfo& info, absl::Time now) {
  registry_.Attach(link, info);
  // Reports of room may have been lost with the previous connection, or the worker has restarted.
  for (Request* request : live_) request->placement.refusals.Forget(link);
  watch_.Attached(link, now);
  // A worker that was lost several times is returning before it gets its first request.
  if (!NoteHealth(now)) PlaceWaiting(now);
  MoveFromAvoided(now);
}

void RouterCore::WorkerLost(const WorkerAddress& link, absl::Time now) {
  const AttachedWorker* worker = registry_.Find(link);
  if (worker == nullptr) return;
  const bool is_prefill = worker->info.role == WorkerRole::kPrefill;
  const std::string what = absl::StrCat(is_prefill ? "prefill" : "decode", " worker ", link, " was lost");
  const bool left = worker->load.draining;
  // Removed first, so that no action goes to the worker.
  const std::vector<Request*> requests = assignments_.LeaveWorker(*worker);
  rooms_.WorkerLost(link);
  registry_.Remove(link, now);
  watch_.Lost(link, left, now);
  const absl::Status suspicion = absl::InternalError(
      absl::StrCat(what, ", and ", kMostLostWorkers - 1, " workers before it; this request may be the cause"));
  for (Request* request : hedges_.DropAt(link, left)) {
    if (request->placement.lost_workers >= kMostLostWorkers) End(*request, suspicion);
  }
  for (Request* request : requests) {
    Placement& placement = request->placement;
    const bool streams = placement.state == State::kStreaming;
    // The request may be the cause if a step of the worker had it.
    const bool ran = placement.in_step && !streams && is_prefill == (placement.state == State::kPrefilling);
    if (!left && ran && ++placement.lost_workers >= kMostLostWorkers) {
      End(*request, suspicion);
      continue;
    }
    if (!streams) ForgetRefusals(*request);
    request->ExtendByOutput();
    PlaceOrWait(*request, now);
  }
  AskElsewhere(link, now);
}

// The worker reports no room any longer, so requests that it refused wait for another worker.
void RouterCore::AskElsewhere(const WorkerAddress& link, absl::Time now) {
  for (Request* request : waiting_.InServiceOrder()) {
    if (request->placement.refusals.Forget(link) && !TryPlace(*request, now)) Wait(*request, now);
  }
  UseHeldRoom(now);
}

int64_t RouterCore::Drain(const WorkerAddress& link, bool drained, absl::Time now) {
  registry_.SetDrained(link, drained);
  if (drained) {
    rooms_.DropAt(link);
    AskElsewhere(link, now);
    MoveFromAvoided(now);
  } else {
    UseHeldRoom(now);
    PlaceWaiting(now);
  }
  const AttachedWorker* worker = registry_.Find(link);
  return worker == nullptr ? 0 : std::ssize(worker->requests) + hedges_.JobsAt(link);
}

void RouterCore::WorkerLoaded(const WorkerAddress& link, const WorkerLoad& load, absl::Time now) {
  AttachedWorker* worker = registry_.Find(link);
  if (worker == nullptr) return;
  const bool begins_to_drain = load.draining && !worker->load.draining;
  worker->load = load;
  if (load.draining) rooms_.WorkerLost(link);
  if (begins_to_drain) AskElsewhere(link, now);
  watch_.Reported(link, load, now);
  if (NoteHealth(now)) MoveFromAvoided(now);
}

// Returns whether the health of a worker has changed.
bool RouterCore::NoteHealth(absl::Time now) {
  std::vector<WorkerWatch::Change> changes = watch_.TakeChanges();
  for (WorkerWatch::Change& change : changes) {
    registry_.SetHealth(change, now);
    actions_.push_back({.kind = RouterAction::Kind::kHealth, .health = std::move(change)});
  }
  if (changes.empty()) return false;
  rooms_.DropUnasked();
  UseHeldRoom(now);
  // The best workers that a waiting request may ask may be others now.
  PlaceWaiting(now);
  return true;
}

// --- requests ------------------------------------------------------------------------------------

absl::Status RouterCore::Submit(Request& request, absl::Time now) {
  Placement& placement = request.placement;
  const ClientRequest& asked = request.asked;
  BATON_CHECK(placement.state == State::kNone, request.id);
  BATON_CHECK(placement.prompt_tokens >= 1 || placement.route.streaming, request.id);
  const bool may_wait =
      waiting_.HasRoom(asked.spec) || registry_.Readiness(asked.served->name, asked.prefill_only).ok();
  if (!may_wait) return waiting_.Check(asked.spec);
  // A low-priority job has a slot while its prompt streams, because it has limits of its own.
  const bool waits = (placement.route.streaming || placement.route.held) && !IsLowPriority(asked.spec.priority);
  RETURN_IF_ERROR(waits ? slots_.Wait(request.slot, asked.spec, asked.most_requests, WaitingBytes(asked))
                        : slots_.Run(request.slot, asked.spec, asked.most_requests));
  placement.state = State::kHeld;
  placement.sequence = next_sequence_++;
  live_.insert(&request);
  if (now >= asked.deadline) {
    End(request, absl::DeadlineExceededError("the deadline had passed when the request arrived"));
  } else if (placement.route.held) {
    Arm(request);
  } else {
    PlaceOrWait(request, now);
  }
  return absl::OkStatus();
}

void RouterCore::Admit(Request& request, absl::Time now) {
  const Placement& placement = request.placement;
  if (placement.state != State::kHeld) return;
  if (placement.route.streaming || slots_.Ready(request.slot)) PlaceOrWait(request, now);
}

// Returns false if the request has ended, because its tenant's waiting prompts have too many bytes.
bool RouterCore::NotePromptTokens(Request& request) {
  const int64_t more = std::ssize(request.asked.spec.tokens) - request.placement.prompt_tokens;
  assignments_.NotePromptTokens(request);
  const absl::Status grown = slots_.Grow(request.slot, more * static_cast<int64_t>(sizeof(TokenId)));
  if (!grown.ok()) End(request, grown, limits_.retry_hint);
  return grown.ok();
}

void RouterCore::Grew(Request& request) {
  Placement& placement = request.placement;
  if (placement.state == State::kNone || !NotePromptTokens(request)) return;
  if (placement.state != State::kStreaming) return;
  actions_.push_back({.kind = RouterAction::Kind::kAppend, .request = &request, .worker = placement.prefill});
}

void RouterCore::Closed(Request& request, absl::Time now) {
  Placement& placement = request.placement;
  if (placement.state == State::kNone) return;
  BATON_CHECK(placement.route.streaming, request.id);
  // The worker computes the prompt meanwhile. A held request gets its slot when it is admitted.
  if (placement.state != State::kHeld && !slots_.Ready(request.slot)) return Grew(request);
  if (!NotePromptTokens(request)) return;
  placement.route.streaming = false;
  if (placement.state == State::kHeld) return;
  if (placement.state == State::kWaiting || placement.state == State::kCollecting) {
    waiting_.Remove(request);
    // The refusals concern streaming prompts. Workers may have room for a complete one.
    placement.refusals.Clear();
    return PlaceOrWait(request, now);
  }
  placement.state = State::kPrefilling;
  if (!request.asked.prefill_only) {
    const AttachedWorker* decode = choice_.DecodeFor(request, registry_.At(placement.prefill));
    if (decode == nullptr) {
      ForgetRefusals(request);
      // Waits for a decode worker to attach, and starts over then.
      return PlaceOrWait(request, now);
    }
    assignments_.Expect(request, nullptr);
    assignments_.ToDecode(request, *decode);
  }
  actions_.push_back({.kind = RouterAction::Kind::kClose,
                      .request = &request,
                      .worker = placement.prefill,
                      .decode_worker = placement.decode.empty() ? "" : registry_.At(placement.decode).info.address});
}

void RouterCore::EndBy(Request& request, absl::Time deadline) {
  if (request.placement.state == State::kNone) return;
  request.asked.deadline = std::min(request.asked.deadline, deadline);
  Arm(request);
}

bool RouterCore::PrefillDone(const WorkerAddress& link, Request& request, Incarnation decode_incarnation,
                             absl::Time now) {
  Placement& placement = request.placement;
  if (placement.former && placement.former->prefill == link) GiveUpHedge(request);
  if (placement.state != State::kPrefilling || placement.prefill != link) {
    // The request ended before the commit arrived. No request will start the decode worker's
    // blocks.
    if (const AttachedWorker* decode = registry_.FindDecode(decode_incarnation)) {
      actions_.push_back({.kind = RouterAction::Kind::kCancel, .request = &request, .worker = decode->link});
    }
    return false;
  }
  if (!request.asked.prefill_only && registry_.At(placement.decode).info.incarnation != decode_incarnation) {
    // The router has not noticed the restart yet. It leaves the worker out until it attaches.
    const std::string what = StrCat("decode worker ", placement.decode, " has restarted and is not attached yet");
    Failed(link, request, {absl::UnavailableError(what), limits_.worker_wait, true, true}, now);
    return false;
  }
  DropFormer(request);
  assignments_.LeavePrefill(request);
  rooms_.Drop(request);
  if (request.asked.prefill_only) {
    End(request, absl::OkStatus());
    return true;
  }
  tenants_.Granted(request);
  placement.CountTime(now, /*is_wait=*/false);
  placement.state = State::kStarting;
  placement.in_step = false;
  placement.decoder = registry_.At(placement.decode).info.decoder();
  actions_.push_back({.kind = RouterAction::Kind::kStartDecode, .request = &request, .worker = placement.decode});
  return true;
}

void RouterCore::Failed(const WorkerAddress& link, Request& request, const Failure& failure, absl::Time now) {
  Placement& placement = request.placement;
  if (placement.former && placement.former->prefill == link) return DropFormer(request);
  if (placement.prefill != link && placement.decode != link) return;
  const FailureMeaning meaning = MeaningOf(failure, link, request, registry_);
  placement.failed_starts += meaning.failed_start;
  const bool streaming = placement.state == State::kStreaming;
  if (meaning.again) {
    absl::Duration delay = RetryDelay(failure, waiting_.size());
    // One failed start is no reason to avoid the worker.
    if (meaning.failed_start) delay = std::max(delay, (placement.failed_starts - 1) * limits_.retry_hint);
    AttachedWorker* full = meaning.until_room ? registry_.Find(meaning.refuser) : nullptr;
    absl::Time left_out_until = now + delay;
    if (meaning.until_room) left_out_until = full != nullptr && full->TakeUnusedRoom() ? now : absl::InfiniteFuture();
    placement.refusals.LeaveOut(meaning.refuser, left_out_until);
    if (meaning.refuser != placement.decode) PassOnRoom(placement);
    assignments_.LeavePrefill(request);
    assignments_.LeaveDecode(request);
    if (streaming) return PlaceOrWait(request, now);
    if (meaning.leaves || !placement.refused_at) placement.BeginRefusals(now);
    placement.CountTime(now, /*is_wait=*/!meaning.until_room);
    placement.last_refusal = meaning.reason;
    request.ExtendByOutput();
    if (now < placement.CapacityEnd(limits_.capacity_wait, now)) {
      if (TryPlace(request, now)) return;
      if (meaning.unreachable) {  // perhaps the prefill worker reaches no decode worker at all
        placement.refusals.Replace(meaning.refuser, link, left_out_until);
        if (TryPlace(request, now)) return;
        placement.refusals.Replace(link, meaning.refuser, left_out_until);
      }
      if (placement.former) return GiveUpHedge(request, /*refused=*/true);
      if (waiting_.HasRoom(request.asked.spec) || request.completion_tokens > 0) return Wait(request, now);
    }
  }
  PassOnRoom(placement);
  // The worker that reported the failure holds nothing of the request.
  if (placement.prefill == link) assignments_.LeavePrefill(request);
  if (placement.decode == link) assignments_.LeaveDecode(request);
  if (placement.former) return GiveUpHedge(request);
  End(request, registry_.BlameQuarantine(placement, meaning.reason), failure.retry_after);
}

void RouterCore::OnRoom(const WorkerAddress& link, int64_t requests, Request* kept, absl::Time now) {
  AttachedWorker* worker = registry_.Find(link);
  if (worker == nullptr) return;
  if (!registry_.MayBeAsked(*worker)) {
    worker->held_room += requests;
    return;
  }
  const bool has_kept = kept != nullptr && kept->placement.state == State::kWaiting && kept->placement.room_at == link;
  if (has_kept) AskAgain(*kept, link, now);
  while (requests > 0) {
    Request* first = waiting_.FirstRefusedBy(link);
    if (first == nullptr) break;
    requests -= AskAgain(*first, link, now);
  }
  worker->AddUnusedRoom(requests);
}

// Lets requests use the room of workers that may be asked again.
void RouterCore::UseHeldRoom(absl::Time now) {
  for (const WorkerAddress& link : registry_.HoldersOfRoom()) {
    OnRoom(link, std::exchange(registry_.At(link).held_room, 0), nullptr, now);
  }
}

// Lets a waiting request ask a worker that has refused it. Returns whether the request asks it.
bool RouterCore::AskAgain(Request& request, const WorkerAddress& link, absl::Time now) {
  request.placement.refusals.Forget(link);
  if (!TryPlace(request, now)) Wait(request, now);  // the request waits for a prefill worker
  if (request.placement.decode != link) return false;
  tenants_.Asked(request);
  return true;
}

// Offers a decode worker's room to the next request. The present request leaves the worker before
// it has KV there, and may be the one that asked because of a report of room.
void RouterCore::PassOnRoom(const Placement& placement) {
  // Room that the worker kept for this request remains kept, or the worker reports it itself.
  const bool asks = placement.asks() && placement.room_at != placement.decode;
  const AttachedWorker* worker = asks ? registry_.Find(placement.decode) : nullptr;
  if (worker == nullptr) return;
  // The count includes this request, so a count above 1 means that another request has a hand-off
  // under way. Its refusal may be in flight. It then waits soon, and can use this room.
  if (waiting_.size() > 0 || worker->HandoffsUnderWay() > 1) room_left_.insert(placement.decode);
}

bool RouterCore::TokensArrived(const WorkerAddress& link, Request& request, const TokenUpdate& update, absl::Time now) {
  Placement& placement = request.placement;
  if (placement.decode != link) return false;
  const bool first = placement.state == State::kStarting || placement.state == State::kScoring;
  if (!first && placement.state != State::kDecoding) return false;
  if (placement.state == State::kScoring) tenants_.Granted(request);
  if (first) ForgetRefusals(request);
  placement.state = State::kDecoding;
  placement.in_step = true;
  placement.lost_workers = placement.failed_starts = placement.moves = placement.hangs = 0;
  const bool outgrows = choice_.Outgrows(request, update);
  if (update.finish) assignments_.LeaveDecode(request);  // the worker holds nothing of the request
  placement.outgrown = outgrows;
  if (outgrows) {
    request.ExtendByOutput();
    PlaceOrWait(request, now);
    return false;
  }
  request.completion_tokens += static_cast<int32_t>(update.tokens.size());
  if (update.finish) End(request, absl::OkStatus());
  return true;
}

void RouterCore::EndAll() {
  std::vector<Request*> requests(live_.begin(), live_.end());
  std::ranges::sort(requests, {}, &Request::id);
  for (Request* request : requests) {
    End(*request, absl::UnavailableError("the router shuts down"), limits_.retry_hint);
  }
}

// --- placement -----------------------------------------------------------------------------------

bool RouterCore::TryPlace(Request& request, absl::Time now) {
  request.placement.refusals.ForgetDue(now);
  const WorkerChoice::Workers chosen = choice_.Choose(request);
  const absl::Status fits = chosen.found() ? absl::OkStatus() : choice_.CheckMaxTokens(request, now);
  if (chosen.found()) Place(request, chosen, now);
  if (!fits.ok()) End(request, fits);
  return chosen.found() || !fits.ok();
}

void RouterCore::Place(Request& request, const WorkerChoice::Workers& workers, absl::Time now, bool hedge) {
  const AttachedWorker* decode = workers.decode;
  Placement& placement = request.placement;
  waiting_.Remove(request);
  placement.CountTime(now);
  rooms_.Placed(request, decode, now);
  placement.state = workers.StateOf(request);
  placement.in_step = false;
  if (workers.prefill != nullptr) assignments_.ToPrefill(request, *workers.prefill);
  if (placement.state == State::kStreaming) {
    assignments_.Expect(request, decode);
  } else if (decode != nullptr) {
    assignments_.ToDecode(request, *decode);
  }
  if (placement.state == State::kScoring) placement.decoder = decode->info.decoder();
  actions_.push_back(workers.ActionFor(request, hedge));
  Arm(request);
}

void RouterCore::PlaceWaiting(absl::Time now) {
  for (Request* request : waiting_.InServiceOrder()) {
    if (TryPlace(*request, now) && request->placement.state != State::kNone) tenants_.Asked(*request);
  }
}

// Cancels the request at its workers, except a former job.
void RouterCore::LeaveWorkers(Request& request) {
  Placement& placement = request.placement;
  for (const WorkerAddress& link : {placement.prefill, placement.decode}) {
    if (link.empty()) continue;
    actions_.push_back({.kind = RouterAction::Kind::kCancel, .request = &request, .worker = link});
  }
  PassOnRoom(placement);
  assignments_.LeavePrefill(request);
  assignments_.LeaveDecode(request);
}

// Cancels the request at its workers, and places it again or makes it wait.
void RouterCore::PlaceOrWait(Request& request, absl::Time now) {
  Placement& placement = request.placement;
  LeaveWorkers(request);
  if (TryPlace(request, now)) return;
  if (placement.former) return GiveUpHedge(request, /*refused=*/true);
  if (request.may_wait()) return Wait(request, now);
  End(request,
      absl::UnavailableError("no prefill worker can take this low-priority job now; such a job does not wait"));
}

void RouterCore::Wait(Request& request, absl::Time now) {
  Placement& placement = request.placement;
  placement.CountTime(now);
  placement.reason = choice_.Readiness(request);
  if (placement.reason.ok() && placement.route.streaming) {
    waiting_.Remove(request);
    placement.state = State::kCollecting;
    return Arm(request);
  }
  if (placement.reason.ok()) {
    if (!placement.refused_at) {
      placement.BeginRefusals(now);
      placement.last_refusal = absl::UnavailableError("no worker can take the request now");
    }
    placement.reason = placement.last_refusal;
    placement.SetGiveUp(placement.CapacityEnd(limits_.capacity_wait, now), limits_.capacity_wait, *placement.refused_at,
                        request.asked.deadline);
  } else {
    // This also covers requests whose refusing workers have left. They wait for other workers as
    // new requests do, and capacity_wait begins with the next refusal.
    ForgetRefusals(request);
    // Later than now, so that Tick ends.
    const absl::Time end = std::max(now + std::max(limits_.worker_wait, absl::Nanoseconds(1)),
                                    registry_.AwaitedUntil(request.asked.served->name, request.asked.prefill_only));
    placement.SetGiveUp(end, end - now, now, request.asked.deadline);
  }
  placement.state = State::kWaiting;
  placement.late = now >= placement.late_at;
  waiting_.Add(request);
  if (placement.refused_at) rooms_.Waits(request, now);
  Arm(request);
}

// --- avoided workers -----------------------------------------------------------------------------

void RouterCore::MoveFromAvoided(absl::Time now) {
  for (Request* request : registry_.RequestsToMove()) Move(*request, now);
}

// Starts a request elsewhere, if workers that are not avoided can take it.
void RouterCore::Move(Request& request, absl::Time now) {
  Placement& placement = request.placement;
  if (!request.may_wait()) return;
  const absl::Status hang = registry_.BlameHang(placement);
  if (!hang.ok() && placement.hangs + 1 >= kMostLostWorkers) return End(request, hang);
  if (placement.moves >= kMostMoves) return;
  placement.refusals.EndAwaitsAt(now + limits_.retry_hint);
  placement.refusals.ForgetDue(now);
  const WorkerChoice::Workers chosen = choice_.ChooseToMove(request);
  if (!chosen.found()) return;
  placement.CountTime(now, /*is_wait=*/false);
  const bool hedge =
      placement.state == State::kPrefilling && !placement.former && registry_.At(placement.prefill).avoided();
  if (hedge) {
    rooms_.Drop(request);  // the worker keeps room for the first job's name
    hedges_.Begin(request);
  } else {
    LeaveWorkers(request);
  }
  ++placement.moves;
  placement.hangs += !hang.ok();
  ++(hedge ? request.hedged : request.moved);
  request.ExtendByOutput();
  Place(request, chosen, now, hedge);
}

// Cancels a former job. Another request may use the room that its decode worker has reported.
void RouterCore::DropFormer(Request& request) {
  if (!request.placement.former) return;
  const WorkerAddress& decode = request.placement.former->decode;
  if (waiting_.size() > 0 && registry_.Find(decode) != nullptr) room_left_.insert(decode);
  hedges_.Drop(request);
}

// Cancels the hedge, so that a former job is the only one again.
void RouterCore::GiveUpHedge(Request& request, bool refused) {
  LeaveWorkers(request);
  hedges_.Keep(request, refused);
}

// --- ends ----------------------------------------------------------------------------------------

void RouterCore::End(Request& request, const absl::Status& status, absl::Duration retry_after) {
  Placement& placement = request.placement;
  if (placement.state == State::kNone) return;
  DropFormer(request);
  LeaveWorkers(request);
  rooms_.Drop(request);
  waiting_.Remove(request);
  timers_.Clear(request);
  slots_.Leave(request.slot);
  tenants_.Ended(request);
  live_.erase(&request);
  placement.state = State::kNone;
  actions_.push_back(
      {.kind = RouterAction::Kind::kEnd, .request = &request, .status = status, .retry_after = retry_after});
}

// --- time ----------------------------------------------------------------------------------------

void RouterCore::Arm(Request& request) {
  const Placement& placement = request.placement;
  absl::Time timer = request.asked.deadline;
  if (placement.state == State::kWaiting) {
    timer = std::min(timer, placement.late ? placement.give_up : placement.late_at);
    // A request that waits for a worker is placed by WorkerAttached. A request that waits for room
    // asks again when the retry delay of a refusal ends.
    timer = std::min(timer, placement.refusals.Next());
  }
  timers_.Set(request, timer);
}

absl::Time RouterCore::NextTick() const {
  if (!room_left_.empty() && waiting_.size() > 0) return absl::InfinitePast();
  return std::min({timers_.Next(), rooms_.NextTick(), NextWatch()});
}

void RouterCore::Tick(absl::Time now) {
  EndOverdue(now);
  if (now >= NextWatch()) {
    watch_.Tick(now);
    NoteHealth(now);
    MoveFromAvoided(now);
  }
  for (const WorkerAddress& link : std::exchange(room_left_, {})) OnRoom(link, 1, nullptr, now);
  while (timers_.Next() <= now) PlaceOrWait(FirstToAsk(*timers_.First(), now), now);
  rooms_.Tick(now);
}

void RouterCore::EndOverdue(absl::Time now) {
  for (Request* request : timers_.Due(now)) {
    Placement& placement = request->placement;
    const auto drains = [&](const Refusals::Refusal& refusal) { return registry_.IsDraining(refusal.link); };
    if (now >= request->asked.deadline) {
      End(*request, DeadlinePassed(*request));
    } else if (now < placement.give_up) {
      placement.late = now >= placement.late_at;
      Arm(*request);
    } else if (std::ranges::any_of(placement.refusals.all(), drains)) {
      // The wait for room begins when the worker that shuts down has left.
      placement.BeginRefusals(now);
      Wait(*request, now);
    } else {
      End(*request, registry_.BlameQuarantine(placement, placement.reason), limits_.retry_hint);
    }
  }
}

// Returns the request to place now. `request` has a refusal whose `until` has passed, so one
// request may ask that worker. The first waiting request that the worker has refused asks, and the
// two exchange their `until`.
Request& RouterCore::FirstToAsk(Request& request, absl::Time now) {
  for (Refusals::Refusal& refusal : request.placement.refusals.all()) {
    if (refusal.until > now) continue;
    Request* first = waiting_.FirstRefusedBy(refusal.link);
    if (first == nullptr || first == &request) continue;
    std::swap(first->placement.refusals.Find(refusal.link)->until, refusal.until);
    Arm(request);
    tenants_.Asked(*first);
    return *first;
  }
  tenants_.Asked(request);
  return request;
}

void RouterCore::CheckInvariants() const {
  registry_.CheckInvariants();
  assignments_.CheckInvariants(live_);
  rooms_.CheckInvariants(live_);
  timers_.CheckInvariants(live_);
  tenants_.CheckInvariants(live_);
  hedges_.CheckInvariants(live_);
  int32_t waiting = 0;
  std::vector<const RequestSlots::Part*> slots;
  for (const Request* request : live_) {
    const Placement& placement = request->placement;
    slots.push_back(&request->slot);
    BATON_CHECK((placement.state == State::kWaiting) == waiting_.Contains(*request), request->id);
    CheckPlacement(*request);
    waiting += placement.state == State::kWaiting;
  }
  BATON_CHECK(waiting == waiting_.size(), "an ended request is in the queue");
  slots_.CheckInvariants(slots);
}

}  // namespace baton
