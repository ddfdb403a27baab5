// A router core with a worker of each kind, whose actions are lines of text.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "router/router_core.h"
#include "router/worker_names.h"

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

inline RouteRequest Request(const std::string& id, absl::Time deadline = absl::InfiniteFuture()) {
  return {.id = id, .model = "m", .prompt_tokens = 20, .max_new_tokens = 10, .deadline = deadline};
}

// One line for each action: "prefill r1 prefill-1 decode-1", "end r1 UNAVAILABLE".
inline std::vector<std::string> Take(RouterCore& core) {
  core.CheckInvariants();
  std::vector<std::string> lines;
  for (const RouterAction& action : core.TakeActions()) {
    switch (action.kind) {
      case Kind::kStartPrefill:
        lines.push_back(absl::StrCat(action.open ? "open " : "prefill ", action.request, " ", action.worker, " ",
                                     action.decode_worker));
        break;
      case Kind::kAppend:
        lines.push_back(absl::StrCat("append ", action.request, " ", action.worker));
        break;
      case Kind::kClose:
        lines.push_back(absl::StrCat("close ", action.request, " ", action.worker, " ", action.decode_worker));
        break;
      case Kind::kStartDecode:
        lines.push_back(absl::StrCat("decode ", action.request, " ", action.worker));
        break;
      case Kind::kCancel:
        lines.push_back(absl::StrCat("cancel ", action.request, " ", action.worker));
        break;
      case Kind::kEnd:
        lines.push_back(absl::StrCat("end ", action.request, " ", absl::StatusCodeToString(action.status.code())));
    }
  }
  return lines;
}

using Lines = std::vector<std::string>;

struct Cluster {
  absl::Time now = absl::UnixEpoch();
  RouterCore core;
  explicit Cluster(RouterLimits limits = {}) : core(limits) {
    core.WorkerAttached(kP, Info(WorkerRole::kPrefill, kP, 11), now);
    core.WorkerAttached(kD, Info(WorkerRole::kDecode, kD, 22), now);
  }
};

enum class Stage { kPrefilling, kStarting, kDecoding };

// A cluster with request "r" in the given state and no action pending.
inline void Bring(Cluster& c, Stage stage) {
  REQUIRE(c.core.Submit(Request("r", c.now + absl::Seconds(60)), c.now).ok());
  if (stage != Stage::kPrefilling) REQUIRE(c.core.PrefillDone(kP, "r", Incarnation(22)));
  if (stage == Stage::kDecoding) REQUIRE(c.core.TokensArrived(kD, "r", false));
  Take(c.core);
}

inline RouteRequest OpenRequest(const std::string& id) {
  RouteRequest request = Request(id);
  request.open = true;
  request.prompt_tokens = 0;
  return request;
}

inline RouterCore::Failure Full(absl::Duration hint = absl::Milliseconds(50), bool at_decode = true) {
  return {absl::ResourceExhaustedError("full"), hint, at_decode};
}

}  // namespace baton
