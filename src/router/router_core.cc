#include "router/router_core.h"

#include <algorithm>
#include <ranges>

#include "base/check.h"
#include "base/status.h"
#include "base/strings.h"
#include "kv/block_layout.h"
#include "request/priority.h"

namespace baton {
namespace {

// The shortest times between attempts at a worker, for one request and for all waiting requests
// together. They bound the attempts if retry delays are short and many requests wait.
constexpr absl::Duration kShortestRetry = absl::Milliseconds(10);
constexpr absl::Duration kRetrySpacing = absl::Milliseconds(1);

// How often a request's hand-off may fail at its start, since the last token.
constexpr int32_t kMostFailedStarts = 3;

using State = Placement::State;

void LeaveOut(Placement& placement, const WorkerAddress& link, absl::Time until) {
  const auto known = std::ranges::find(placement.refusals, link, &Placement::Refusal::link);
  if (known == placement.refusals.end()) {
    placement.refusals.push_back({link, until});
  } else {
    known->until = until;
  }
}

// Returns how many requests have a hand-off to the worker under way.
int64_t Asking(const AttachedWorker& worker) {
  return std::ranges::count_if(worker.requests, [](const Request* request) {
    return request->placement.state == Placement::State::kPrefilling;
  });
}

}  // namespace

RouterCore::RouterCore(const RouterLimits& limits)
    : limits_(limits),
      registry_(limits.restart_wait),
      shares_(limits.live_requests),
      waiting_(limits.waiting_requests, shares_) {}

// --- workers -------------------------------------------------------------------------------------

void RouterCore::WorkerAttached(const WorkerAddress& link, const WorkerInfo& info, absl::Time now) {
  registry_.Attach(link, info);
  // Reports of room may have been lost with the previous connection.
  for (Request* request : live_) {
    std::erase_if(request->placement.refusals, [&](const Placement::Refusal& refusal) {
      return refusal.link == link && refusal.until == absl::InfiniteFuture();
    });
  }
  PlaceWaiting(now);
}

void RouterCore::WorkerLost(const WorkerAddress& link, absl::Time now) {
  const AttachedWorker* worker = registry_.Find(link);
  if (worker == nullptr) return;
  const bool is_prefill = worker->info.role == WorkerRole::kPrefill;
  const std::string what = absl::StrCat(is_prefill ? "prefill" : "decode", " worker ", link, " was lost");
  const bool left = worker->load.draining;
  // Removed first, so that no action goes to the worker.
  const std::vector<Request*> requests = assignments_.LeaveWorker(*worker);
  registry_.Remove(link, now);
  for (Request* request : requests) {
    Placement& placement = request->placement;
    const bool streams = placement.state == State::kStreaming;
    // The request may be the cause if a step of the worker had it.
    const bool ran = placement.in_step && !streams && is_prefill == (placement.state == State::kPrefilling);
    if (!left && ran && ++placement.lost_workers >= kMostLostWorkers) {
      End(*request, absl::InternalError(absl::StrCat(what, ", and ", kMostLostWorkers - 1,
                                                     " workers before it; this request may be the cause")));
      continue;
    }
    if (!streams) {
      // The request now waits for a worker to attach, not for these refusals.
      placement.refusals.clear();
      placement.refused_at.reset();
    }
    request->ExtendByOutput();
    PlaceOrWait(*request, now);
  }
  // The lost worker reports no room, so requests that it refused wait for another worker.
  for (Request* request : waiting_.InServiceOrder()) {
    const auto refused = [&](const Placement::Refusal& refusal) { return refusal.link == link; };
    if (std::erase_if(request->placement.refusals, refused) > 0 && !TryPlace(*request, now)) Wait(*request, now);
  }
}

void RouterCore::WorkerLoaded(const WorkerAddress& link, const WorkerLoad& load) {
  if (AttachedWorker* worker = registry_.Find(link)) worker->load = load;
}

// --- requests ------------------------------------------------------------------------------------

absl::Status RouterCore::Submit(Request& request, absl::Time now) {
  Placement& placement = request.placement;
  const ClientRequest& asked = request.asked;
  BATON_CHECK(placement.state == State::kNone, request.id);
  BATON_CHECK(placement.prompt_tokens >= 1 || placement.route.streaming, request.id);
  if (live_requests() >= limits_.live_requests) {
    return absl::ResourceExhaustedError(
        absl::StrCat("overloaded: ", live_requests(), " live requests, limit ", limits_.live_requests));
  }
  RETURN_IF_ERROR(shares_.Check(asked.spec, live_requests()));
  if (!waiting_.HasRoom(asked.spec) && !registry_.Readiness(asked.served->name, asked.prefill_only).ok()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "overloaded: ", waiting_requests(), " requests wait, limit ", limits_.waiting_requests,
        asked.spec.tenant.empty() ? "" : "; a tenant with more waiting requests than free slots may not add one"));
  }
  placement.state = State::kHeld;
  placement.sequence = next_sequence_++;
  live_.insert(&request);
  shares_.Begin(asked.spec);
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
  if (request.placement.state == State::kHeld) PlaceOrWait(request, now);
}

void RouterCore::Cancel(Request& request) { End(request, absl::CancelledError("cancelled by the client")); }

void RouterCore::Grew(Request& request) {
  Placement& placement = request.placement;
  if (placement.state == State::kNone) return;
  assignments_.NotePromptTokens(request);
  if (placement.state != State::kStreaming) return;
  actions_.push_back({.kind = RouterAction::Kind::kAppend, .request = &request, .worker = placement.prefill});
}

void RouterCore::Closed(Request& request, absl::Time now) {
  Placement& placement = request.placement;
  if (placement.state == State::kNone) return;
  BATON_CHECK(placement.route.streaming, request.id);
  assignments_.NotePromptTokens(request);
  placement.route.streaming = false;
  if (placement.state == State::kHeld) return;
  if (placement.state == State::kWaiting || placement.state == State::kCollecting) {
    waiting_.Remove(request);
    // The refusals concern streaming prompts. Workers may have room for a complete one.
    placement.refusals.clear();
    return PlaceOrWait(request, now);
  }
  placement.state = State::kPrefilling;
  if (!request.asked.prefill_only) {
    const AttachedWorker* decode =
        DecodeFor(request, registry_.At(placement.prefill), registry_.Decodes(request.asked.served->name));
    if (decode == nullptr) {
      placement.refusals.clear();
      placement.refused_at.reset();
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
  if (placement.state != State::kPrefilling || placement.prefill != link) {
    // The request ended before the commit arrived. No request will start the decode worker's
    // blocks.
    for (const auto& [address, worker] : registry_.workers()) {
      if (worker.info.role == WorkerRole::kDecode && worker.info.incarnation == decode_incarnation) {
        actions_.push_back({.kind = RouterAction::Kind::kCancel, .request = &request, .worker = address});
      }
    }
    return false;
  }
  assignments_.LeavePrefill(request);
  if (request.asked.prefill_only) {
    End(request, absl::OkStatus());
    return true;
  }
  if (registry_.At(placement.decode).info.incarnation != decode_incarnation) {
    // This router has not noticed yet.
    placement.state = State::kStarting;
    const WorkerAddress decode = placement.decode;
    Failed(decode, request, {absl::FailedPreconditionError("the decode worker has restarted")}, now);
    return false;
  }
  placement.state = State::kStarting;
  placement.in_step = false;
  placement.decoder = registry_.At(placement.decode).info.decoder();
  actions_.push_back({.kind = RouterAction::Kind::kStartDecode, .request = &request, .worker = placement.decode});
  return true;
}

void RouterCore::Remember(const WorkerAddress& link, std::span<const BlockKey> keys) {
  if (AttachedWorker* worker = registry_.Find(link)) worker->prefix_memory->Remember(keys);
}

void RouterCore::Failed(const WorkerAddress& link, Request& request, const Failure& failure, absl::Time now) {
  Placement& placement = request.placement;
  const bool by_prefill = placement.prefill == link;
  if (!by_prefill && placement.decode != link) return;
  absl::Status reason = failure.status;
  if (reason.ok()) reason = absl::InternalError("the worker failed the request without a reason");
  if (absl::IsInvalidArgument(reason)) {
    // Requests were checked before. A worker refuses only prompts that its memory can never hold.
    reason = absl::InvalidArgumentError(StrCat(request.asked.form.paths.prompt, ": ", Message(reason)));
  }
  // The hand-off's lease ended before Start, or its bytes were damaged. Another hand-off may
  // succeed.
  const bool failed_start =
      placement.state == State::kStarting && (absl::IsFailedPrecondition(reason) || absl::IsDataLoss(reason));
  if (failed_start) {
    ++placement.failed_starts;
    reason =
        absl::UnavailableError(StrCat("the hand-off failed: ", Message(reason), "; the request may be sent again"));
  }
  const bool streaming = placement.state == State::kStreaming;
  const bool cannot_hand_off = by_prefill && failure.no_room_to_decode && absl::IsUnavailable(reason);
  const WorkerAddress refuser = by_prefill && failure.no_room_to_decode ? placement.decode : link;
  // The worker shuts down, so the request is placed again as if the worker were lost.
  const bool leaves =
      (absl::IsUnavailable(reason) || absl::IsResourceExhausted(reason)) && registry_.IsDraining(refuser);
  const bool again = (absl::IsResourceExhausted(reason) || cannot_hand_off || leaves ||
                      (failed_start && placement.failed_starts < kMostFailedStarts)) &&
                     !placement.route.at_holder;
  if (again) {
    absl::Duration delay = std::max({failure.retry_after, kShortestRetry, (waiting_requests() + 1) * kRetrySpacing});
    // One failed start is no reason to avoid the worker.
    if (failed_start) delay = std::max(delay, (placement.failed_starts - 1) * limits_.retry_hint);
    const bool until_room = absl::IsResourceExhausted(reason) && failure.no_room_to_decode &&
                            !placement.decode.empty() && failure.retry_after == absl::ZeroDuration();
    absl::Time left_out_until = now + delay;
    if (until_room) left_out_until = TakeUnusedRoom(refuser) ? now : absl::InfiniteFuture();
    LeaveOut(placement, refuser, left_out_until);
    if (refuser != placement.decode) PassOnRoom(placement);
    assignments_.LeavePrefill(request);
    assignments_.LeaveDecode(request);
    if (streaming) return PlaceOrWait(request, now);
    if (leaves || !placement.refused_at) placement.refused_at = now;
    placement.last_refusal = reason;
    request.ExtendByOutput();
    if (now < *placement.refused_at + limits_.capacity_wait) {
      if (TryPlace(request, now)) return;
      if (waiting_.HasRoom(request.asked.spec) || request.completion_tokens > 0) return Wait(request, now);
    }
  }
  PassOnRoom(placement);
  // The worker that reported the failure holds nothing of the request.
  if (placement.prefill == link) assignments_.LeavePrefill(request);
  if (placement.decode == link) assignments_.LeaveDecode(request);
  End(request, BlameQuarantine(request, reason), failure.retry_after);
}

void RouterCore::OnRoom(const WorkerAddress& link, int64_t requests, absl::Time now) {
  while (requests > 0) {
    Request* first = waiting_.FirstRefusedBy(link);
    if (first == nullptr) break;
    Placement& placement = first->placement;
    std::erase_if(placement.refusals, [&](const Placement::Refusal& refusal) { return refusal.link == link; });
    if (!TryPlace(*first, now)) {
      Wait(*first, now);  // the request waits for a prefill worker
    } else if (placement.decode == link) {
      shares_.NoteServed(first->asked.spec.tenant);
      --requests;
    }
  }
  AttachedWorker* worker = registry_.Find(link);
  if (worker == nullptr) return;
  worker->unused_room = std::min(worker->unused_room + requests, Asking(*worker));
}

bool RouterCore::TakeUnusedRoom(const WorkerAddress& link) {
  AttachedWorker* worker = registry_.Find(link);
  if (worker == nullptr) return false;
  worker->unused_room = std::min(worker->unused_room, Asking(*worker));
  if (worker->unused_room == 0) return false;
  --worker->unused_room;
  return true;
}

// Offers a decode worker's room to the next request. The present request leaves the worker before
// it has KV there, and may be the one that asked because of a report of room.
void RouterCore::PassOnRoom(const Placement& placement) {
  const bool asks = placement.state == State::kPrefilling && !placement.decode.empty();
  const AttachedWorker* worker = asks ? registry_.Find(placement.decode) : nullptr;
  if (worker == nullptr) return;
  // Asking includes this request, so a count above 1 means that another request has a hand-off
  // under way. Its refusal may be in flight. It then waits soon, and can use this room.
  if (waiting_.size() > 0 || Asking(*worker) > 1) room_left_.insert(placement.decode);
}

bool RouterCore::TokensArrived(const WorkerAddress& link, Request& request, bool finished) {
  Placement& placement = request.placement;
  if (placement.decode != link) return false;
  if (placement.state != State::kStarting && placement.state != State::kDecoding) return false;
  if (placement.state == State::kStarting) {
    placement.refusals.clear();
    placement.refused_at.reset();
  }
  placement.state = State::kDecoding;
  placement.in_step = true;
  placement.lost_workers = placement.failed_starts = 0;
  if (finished) {
    assignments_.LeaveDecode(request);
    End(request, absl::OkStatus());
  }
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

int64_t RouterCore::FewestUncached(const Request& request) const {
  int64_t fewest = request.placement.prompt_tokens;
  const ClientRequest& asked = request.asked;
  const Candidates decodes = registry_.Decodes(asked.served->name);
  for (const AttachedWorker* worker : registry_.Prefills(asked.served->name, asked.prefill_only, decodes)) {
    fewest = std::min(fewest, UncachedTokens(*worker, request));
  }
  return fewest;
}

RouterCore::Candidates RouterCore::DecodesFor(const Request& request) const {
  Candidates decodes = registry_.Decodes(request.asked.served->name);
  if (!request.output.empty()) {
    std::erase_if(decodes,
                  [&](const AttachedWorker* worker) { return worker->info.decoder() != request.placement.decoder; });
  }
  return decodes;
}

bool RouterCore::TryPlace(Request& request, absl::Time now) {
  Placement& placement = request.placement;
  const ClientRequest& asked = request.asked;
  std::erase_if(placement.refusals, [&](const Placement::Refusal& refusal) { return refusal.until <= now; });
  const auto refused = [&](const AttachedWorker* worker) {
    return std::ranges::count(placement.refusals, worker->link, &Placement::Refusal::link) > 0;
  };
  Candidates decodes = DecodesFor(request);
  std::erase_if(decodes, refused);
  Candidates prefills = registry_.Prefills(asked.served->name, asked.prefill_only, decodes);
  std::erase_if(prefills, refused);
  const AttachedWorker* prefill = ChoosePrefill(prefills, request, limits_.placement);
  if (prefill == nullptr) return false;
  const AttachedWorker* decode = asked.prefill_only ? nullptr : DecodeFor(request, *prefill, std::move(decodes));
  if (decode == nullptr && !asked.prefill_only && !placement.route.streaming) return false;
  Place(request, *prefill, decode);
  return true;
}

// Returns the decode worker for KV of this prefill worker. Null without candidates.
const AttachedWorker* RouterCore::DecodeFor(const Request& request, const AttachedWorker& prefill, Candidates decodes) {
  const Placement& placement = request.placement;
  std::erase_if(decodes, [&](const AttachedWorker* decode) { return !CanShareKv(prefill.info, decode->info); });
  const AttachedWorker* ahead = placement.expected_at.empty() ? nullptr : registry_.Find(placement.expected_at);
  return ChooseDecode(decodes, request, ahead, limits_.placement);
}

void RouterCore::Place(Request& request, const AttachedWorker& prefill, const AttachedWorker* decode) {
  Placement& placement = request.placement;
  const bool streaming = placement.route.streaming;
  waiting_.Remove(request);
  placement.state = streaming ? State::kStreaming : State::kPrefilling;
  placement.in_step = false;
  assignments_.ToPrefill(request, prefill);
  if (streaming) {
    assignments_.Expect(request, decode);
  } else if (decode != nullptr) {
    assignments_.ToDecode(request, *decode);
  }
  actions_.push_back({.kind = RouterAction::Kind::kStartPrefill,
                      .request = &request,
                      .worker = prefill.link,
                      .decode_worker = decode == nullptr ? "" : decode->info.address,
                      .streaming = streaming,
                      .with_output = decode != nullptr && decode->info.has_module_weights() &&
                                     prefill.info.numerics_id == decode->info.numerics_id &&
                                     prefill.info.CanHold(placement.prompt_tokens)});
  Arm(request);
}

void RouterCore::PlaceWaiting(absl::Time now) {
  for (Request* request : waiting_.InServiceOrder()) {
    if (TryPlace(*request, now)) shares_.NoteServed(request->asked.spec.tenant);
  }
}

// Cancels the request at its workers, and places it again or makes it wait.
void RouterCore::PlaceOrWait(Request& request, absl::Time now) {
  Placement& placement = request.placement;
  for (const WorkerAddress& link : {placement.prefill, placement.decode}) {
    if (link.empty()) continue;
    actions_.push_back({.kind = RouterAction::Kind::kCancel, .request = &request, .worker = link});
  }
  PassOnRoom(placement);
  assignments_.LeavePrefill(request);
  assignments_.LeaveDecode(request);
  if (TryPlace(request, now)) return;
  if (!placement.route.at_holder && !IsLowPriority(request.asked.spec.priority)) return Wait(request, now);
  End(request,
      absl::UnavailableError("no prefill worker can take this low-priority job now; such a job does not wait"));
}

void RouterCore::Wait(Request& request, absl::Time now) {
  Placement& placement = request.placement;
  placement.reason = registry_.Readiness(request.asked.served->name, request.asked.prefill_only);
  if (placement.reason.ok() && !request.output.empty() && DecodesFor(request).empty()) {
    placement.reason =
        absl::UnavailableError(StrCat("no decode worker with the weights that began the output is attached; model '",
                                      request.asked.served->name, "' has other weights now"));
  }
  if (placement.reason.ok() && placement.route.streaming) {
    waiting_.Remove(request);
    placement.state = State::kCollecting;
    return Arm(request);
  }
  if (placement.reason.ok()) {
    placement.reason = placement.last_refusal;
    placement.give_up = *placement.refused_at + limits_.capacity_wait;
  } else {
    // This also covers requests whose refusing workers have left. They wait for other workers as
    // new requests do, and capacity_wait begins with the next refusal.
    placement.refusals.clear();
    placement.refused_at.reset();
    placement.give_up = std::max(now + limits_.worker_wait,
                                 registry_.AwaitedUntil(request.asked.served->name, request.asked.prefill_only));
  }
  placement.state = State::kWaiting;
  waiting_.Add(request);
  Arm(request);
}

// --- ends ----------------------------------------------------------------------------------------

void RouterCore::End(Request& request, const absl::Status& status, absl::Duration retry_after) {
  Placement& placement = request.placement;
  if (placement.state == State::kNone) return;
  for (const WorkerAddress& link : {placement.prefill, placement.decode}) {
    if (!link.empty()) actions_.push_back({.kind = RouterAction::Kind::kCancel, .request = &request, .worker = link});
  }
  PassOnRoom(placement);
  assignments_.LeavePrefill(request);
  assignments_.LeaveDecode(request);
  waiting_.Remove(request);
  timers_.Clear(request);
  shares_.End(request.asked.spec);
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
    timer = std::min(timer, placement.give_up);
    // A request that waits for a worker is placed by WorkerAttached. A request that waits for room
    // asks again when the retry delay of a refusal ends.
    for (const Placement::Refusal& refusal : placement.refusals) timer = std::min(timer, refusal.until);
  }
  timers_.Set(request, timer);
}

absl::Time RouterCore::NextTick() const {
  return room_left_.empty() || waiting_.size() == 0 ? timers_.Next() : absl::InfinitePast();
}

void RouterCore::Tick(absl::Time now) {
  EndOverdue(now);
  for (const WorkerAddress& link : std::exchange(room_left_, {})) OnRoom(link, 1, now);
  while (timers_.Next() <= now) PlaceOrWait(FirstToAsk(*timers_.First(), now), now);
}

void RouterCore::EndOverdue(absl::Time now) {
  for (Request* request : timers_.Due(now)) {
    Placement& placement = request->placement;
    const auto drains = [&](const Placement::Refusal& refusal) { return registry_.IsDraining(refusal.link); };
    if (now >= request->asked.deadline) {
      End(*request, absl::DeadlineExceededError("the deadline passed"));
    } else if (now < placement.give_up) {
      continue;
    } else if (std::ranges::any_of(placement.refusals, drains)) {
      // The wait for room begins when the worker that shuts down has left.
      placement.refused_at = now;
      placement.give_up = now + limits_.capacity_wait;
      Arm(*request);
    } else {
      End(*request, BlameQuarantine(*request, placement.reason), limits_.retry_hint);
    }
  }
}

absl::Status RouterCore::BlameQuarantine(const Request& request, const absl::Status& refusal) const {
  if (!absl::IsResourceExhausted(refusal)) return refusal;
  for (const Placement::Refusal& left_out : request.placement.refusals) {
    const auto found = registry_.workers().find(left_out.link);
    if (found == registry_.workers().end()) continue;
    const auto& [link, worker] = *found;
    const WorkerLoad& load = worker.load;
    const bool would_fit =
        BlocksFor(request.placement.prompt_tokens) <= load.blocks_free + load.blocks_cached + load.blocks_quarantined;
    if (load.blocks_quarantined == 0 || !would_fit) continue;
    return absl::UnavailableError(StrCat(Message(refusal), ": ", load.blocks_quarantined, " of the ",
                                         worker.info.blocks_total, " KV blocks of ", link,
                                         " are in quarantine, because a prefill worker may still write them"));
  }
  return refusal;
}

// Returns the request to place now. `request` has a refusal whose `until` has passed, so one
// request may ask that worker. The first waiting request that the worker has refused asks, and the
// two exchange their `until`.
Request& RouterCore::FirstToAsk(Request& request, absl::Time now) {
  for (Placement::Refusal& refusal : request.placement.refusals) {
    if (refusal.until > now) continue;
    Request* first = waiting_.FirstRefusedBy(refusal.link);
    if (first == nullptr || first == &request) continue;
    const auto other_refusal = std::ranges::find(first->placement.refusals, refusal.link, &Placement::Refusal::link);
    std::swap(other_refusal->until, refusal.until);
    Arm(request);
    shares_.NoteServed(first->asked.spec.tenant);
    return *first;
  }
  shares_.NoteServed(request.asked.spec.tenant);
  return request;
}

void RouterCore::CheckInvariants() const {
  registry_.CheckInvariants();
  assignments_.CheckInvariants(live_);
  int32_t waiting = 0;
  size_t timers = 0;
  absl::flat_hash_map<std::string, int32_t> tenants;
  for (const Request* request : live_) {
    const Placement& placement = request->placement;
    const Route& route = placement.route;
    const RequestSpec& spec = request->asked.spec;
    if (TenantShares::Counts(spec)) ++tenants[spec.tenant];
    const bool waits = placement.state == State::kWaiting, streams = placement.state == State::kStreaming;
    BATON_CHECK(waits == waiting_.Contains(*request), request->id);
    BATON_CHECK((streams || placement.state == State::kPrefilling) == !placement.prefill.empty(), request->id);
    const bool either = waits || placement.state == State::kHeld, is_collecting = placement.state == State::kCollecting;
    BATON_CHECK((streams || either || is_collecting || request->asked.prefill_only) == placement.decode.empty(),
                request->id);
    BATON_CHECK(
        !route.at_holder || placement.state == State::kHeld || placement.prefill == request->asked.context.holder,
        request->id);
    BATON_CHECK(either || (streams || is_collecting) == route.streaming, request->id);
    BATON_CHECK(streams || placement.expected_at.empty(), request->id);
    waiting += waits;
    timers += placement.timer != absl::InfiniteFuture();
  }
  BATON_CHECK(waiting == waiting_.size() && timers == timers_.size(),
              "an ended request is in the queue or has a timer");
  BATON_CHECK(tenants.size() == shares_.tenants(), "a tenant without live requests is counted");
  for (const auto& [tenant, live] : tenants) BATON_CHECK(live == shares_.live(tenant), tenant);
}

}  // namespace baton
