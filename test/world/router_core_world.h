// A router core with one worker of each kind. Its actions are lines of text.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "catch.h"
#include "router/router_core.h"
#include "world/route_request.h"
#include "world/worker_names.h"

namespace baton {

using Kind = RouterAction::Kind;

inline WorkerInfo Info(WorkerRole role, const std::string& name, uint64_t incarnation = 1) {
  return {.role = role,
          .address = name,
          .incarnation = Incarnation(incarnation),
          .model = "m",
          .blocks_total = 100,
          .context = 1000,
          .max_batch = 8};
}

inline RouteRequest Ask(const std::string& id, absl::Time deadline = absl::InfiniteFuture()) {
  return {.id = id, .model = "m", .prompt_tokens = 20, .max_new_tokens = 10, .deadline = deadline};
}

// A core and its requests. Tests name requests by id.
class CoreById {
 public:
  explicit CoreById(RouterLimits limits = {}) : core_(limits) {}

  void WorkerAttached(const WorkerAddress& link, const WorkerInfo& info, absl::Time now) {
    core_.WorkerAttached(link, info, now);
  }
  void WorkerLost(const WorkerAddress& link, absl::Time now) { core_.WorkerLost(link, now); }
  void Drain(const WorkerAddress& link, bool drained, absl::Time now) { core_.Drain(link, drained, now); }
  void WorkerLoaded(const WorkerAddress& link, const WorkerLoad& load, absl::Time now = absl::UnixEpoch()) {
    core_.WorkerLoaded(link, load, now);
  }

  // REQUIRES: no live request has the id.
  absl::Status Submit(RouteRequest route, absl::Time now) {
    std::unique_ptr<Request>& record = records_[route.id];
    if (record == nullptr) record = std::make_unique<Request>();
    Fill(*record, std::move(route));
    return core_.Submit(*record, now);
  }
  // Events of ended and unknown requests also go to the core.
  void Admit(const RequestId& id, absl::Time now) { core_.Admit(At(id), now); }
  void Cancel(const RequestId& id) { core_.Fail(At(id), absl::CancelledError("")); }
  void Fail(const RequestId& id, const absl::Status& status) { core_.Fail(At(id), status); }
  void Grew(const RequestId& id, int32_t prompt_tokens) {
    At(id).asked.spec.tokens = PromptOf(prompt_tokens);
    core_.Grew(At(id));
  }
  void Closed(const RequestId& id, int32_t prompt_tokens, int32_t max_new_tokens, absl::Time now) {
    At(id).asked.spec.tokens = PromptOf(prompt_tokens);
    At(id).asked.spec.sampling.max_tokens = max_new_tokens;
    At(id).asked.spec.expected_tokens = max_new_tokens;
    core_.Closed(At(id), now);
  }
  bool Streams(const RequestId& id) { return At(id).placement.route.streaming; }
  // The request has taken a slot after a wait.
  void GoOn(const RequestId& id, absl::Time now) { Streams(id) ? core_.Closed(At(id), now) : core_.Admit(At(id), now); }
  void EndBy(const RequestId& id, absl::Time deadline) { core_.EndBy(At(id), deadline); }
  bool PrefillDone(const WorkerAddress& link, const RequestId& id, Incarnation decode_incarnation, absl::Time now) {
    return core_.PrefillDone(link, At(id), decode_incarnation, now);
  }
  void StepStarted(const RequestId& id) { At(id).placement.in_step = true; }
  void Remember(const WorkerAddress& link, std::span<const BlockKey> keys) { core_.Remember(link, keys); }
  void Failed(const WorkerAddress& link, const RequestId& id, const RouterCore::Failure& failure, absl::Time now) {
    core_.Failed(link, At(id), failure, now);
  }
  void OnRoom(const WorkerAddress& link, int64_t requests, absl::Time now) {
    core_.OnRoom(link, requests, nullptr, now);
  }
  void OnKeptRoom(const WorkerAddress& link, const RequestId& id, absl::Time now) {
    core_.OnRoom(link, 0, &At(id), now);
  }
  bool TokensArrived(const WorkerAddress& link, const RequestId& id, bool finished) {
    TokenUpdate update;
    if (finished) update.finish = FinishReason::kStop;
    return TokensArrived(link, id, update, absl::UnixEpoch());
  }
  bool TokensArrived(const WorkerAddress& link, const RequestId& id, const TokenUpdate& update, absl::Time now) {
    return core_.TokensArrived(link, At(id), update, now);
  }
  void EndAll() { core_.EndAll(); }
  void Tick(absl::Time now) { core_.Tick(now); }
  absl::Time NextTick() const { return core_.NextTick(); }
  std::vector<RouterAction> TakeActions() { return core_.TakeActions(); }

  const WorkerRegistry& registry() const { return core_.registry(); }
  const WorkerRegistry::Workers& workers() const { return core_.registry().workers(); }
  int32_t live_requests() const { return core_.live_requests(); }
  int32_t waiting_requests() const { return core_.waiting().size(); }
  int64_t late_requests() const { return core_.waiting().late(); }
  int64_t FewestUncached(const RouteRequest& request) const {
    return baton::FewestUncached(registry(), *MakeRecord(request));
  }
  const RoomKeeper& rooms() const { return core_.rooms(); }
  void CheckInvariants() const { core_.CheckInvariants(); }

 private:
  Request& At(const RequestId& id) {
    std::unique_ptr<Request>& record = records_[id];
    if (record == nullptr) record = std::make_unique<Request>();
    return *record;
  }

  std::map<RequestId, std::unique_ptr<Request>> records_;  // live or ended
  RouterCore core_;
};

// Returns one line for each action: "prefill r1 prefill-1 decode-1", "end r1 UNAVAILABLE".
inline std::vector<std::string> Take(CoreById& core) {
  core.CheckInvariants();
  std::vector<std::string> lines;
  for (const RouterAction& action : core.TakeActions()) {
    switch (action.kind) {
      case Kind::kStartPrefill:
        lines.push_back(absl::StrCat(action.streaming ? "open "
                                     : action.hedge   ? "hedge "
                                                      : "prefill ",
                                     action.request->id, " ", action.worker, " ", action.decode_worker));
        break;
      case Kind::kAppend:
        lines.push_back(absl::StrCat("append ", action.request->id, " ", action.worker));
        break;
      case Kind::kClose:
        lines.push_back(absl::StrCat("close ", action.request->id, " ", action.worker, " ", action.decode_worker));
        break;
      case Kind::kHasSlot:
        lines.push_back(absl::StrCat("slot ", action.request->id));
        break;
      case Kind::kStartScoring:
        lines.push_back(absl::StrCat("score ", action.request->id, " ", action.worker));
        break;
      case Kind::kStartDecode:
        lines.push_back(absl::StrCat("decode ", action.request->id, " ", action.worker));
        break;
      case Kind::kCancel:
        lines.push_back(absl::StrCat("cancel ", action.request->id, " ", action.worker));
        break;
      case Kind::kKeepRoom:
        lines.push_back(absl::StrCat("keep ", action.request->id, " ", action.worker));
        break;
      case Kind::kDropRoom:
        lines.push_back(absl::StrCat("keep none ", action.worker));
        break;
      case Kind::kDropFormer:
        lines.push_back(
            absl::StrCat("drop former ", action.request->id, " ", action.worker, " ", action.decode_worker));
        break;
      case Kind::kKeepFormer:
        lines.push_back(absl::StrCat("keep former ", action.request->id, " ", action.worker));
        break;
      case Kind::kEnd:
        lines.push_back(absl::StrCat("end ", action.request->id, " ", absl::StatusCodeToString(action.status.code())));
        break;
      case Kind::kHealth:
        lines.push_back(StrCat(action.health.worker, " is ", NameOf(action.health.health)));
    }
  }
  return lines;
}

using Lines = std::vector<std::string>;

struct Cluster {
  absl::Time now = absl::UnixEpoch();
  CoreById core;
  // The workers report no loads, unless the test does so.
  explicit Cluster(RouterLimits limits = {.worker_wait = absl::Seconds(2), .watch = {.silence = absl::ZeroDuration()}})
      : core(limits) {
    core.WorkerAttached(kP, Info(WorkerRole::kPrefill, kP, 11), now);
    core.WorkerAttached(kD, Info(WorkerRole::kDecode, kD, 22), now);
  }
};

enum class Stage { kPrefilling, kStarting, kDecoding };

// Submits request "r" and brings it to the given stage. Takes all actions.
inline void Bring(Cluster& c, Stage stage) {
  REQUIRE(c.core.Submit(Ask("r", c.now + absl::Seconds(60)), c.now).ok());
  if (stage != Stage::kPrefilling) REQUIRE(c.core.PrefillDone(kP, "r", Incarnation(22), c.now));
  if (stage == Stage::kDecoding) REQUIRE(c.core.TokensArrived(kD, "r", false));
  Take(c.core);
}

inline RouteRequest OpenRequest(const std::string& id) {
  RouteRequest request = Ask(id);
  request.streaming = true;
  request.prompt_tokens = 0;
  return request;
}

inline RouterCore::Failure Full(absl::Duration hint = absl::Milliseconds(50), bool at_decode = true) {
  return {absl::ResourceExhaustedError("full"), hint, at_decode};
}

// Returns the refusal of a decode worker that is full until it reports room.
inline RouterCore::Failure NoRoom() { return Full(absl::ZeroDuration()); }

}  // namespace baton
