// The actions of RouterCore, which its owner carries out in order.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "router/worker_watch.h"

namespace baton {

struct Request;

struct RouterAction {
  // - kAppend: the prompt has an increment.
  // - kClose: the increment is the last. From then on the request is like any other.
  // - kHasSlot: the request has taken a slot after a wait (RequestSlots). It goes on with Admit, or
  //   with Closed if its prompt streams.
  // - kStartScoring: the decode worker gets the request without a hand-off.
  // - kKeepRoom: the worker keeps room for the request.
  // - kDropRoom: the worker keeps room for no request.
  // - kHealth: the health of a worker has changed.
  //
  // The class Hedges uses three actions. A kStartPrefill with `hedge` starts a second job. The
  // present one becomes a former job. kDropFormer cancels a former job. kKeepFormer makes a former
  // job the request's only job again. Before it come kCancel actions for the other job.
  enum class Kind {
    kStartPrefill,
    kAppend,
    kClose,
    kHasSlot,
    kStartDecode,
    kStartScoring,
    kCancel,
    kKeepRoom,
    kDropRoom,
    kDropFormer,
    kKeepFormer,
    kEnd,
    kHealth,
  };
  Kind kind = Kind::kEnd;
  Request* request = nullptr;  // null for kDropRoom and kHealth
  WorkerAddress worker{};      // its configured address; empty for kEnd
  // kStartPrefill, kClose: address of the decode worker that receives the KV, or empty. The decode
  // worker of a streaming prompt may still change. kDropFormer: configured address of the decode
  // worker. This address and `worker` are empty if the worker has no part in the job.
  WorkerAddress decode_worker{};
  // kStartPrefill: whether kAppend and kClose actions follow.
  bool streaming = false;
  bool hedge = false;  // for kStartPrefill
  // kStartPrefill: whether the prefill worker computes KV of the output too, to resume the request.
  // If not, the decode worker computes this KV. Reasons are weights of its own, other numerics of
  // the prefill worker, and a prefill worker that cannot hold prompt and output.
  bool with_output = false;
  absl::Duration waited{};  // kKeepRoom: since the first refusal
  absl::Status status{};    // for kEnd
  // For kEnd with RESOURCE_EXHAUSTED or UNAVAILABLE. Zero: unknown.
  absl::Duration retry_after{};
  WorkerWatch::Change health{};  // for kHealth
};

}  // namespace baton
