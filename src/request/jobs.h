// The jobs that the router sends to workers. rpc/ converts these structs to protobuf.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "base/ids.h"
#include "request/request_spec.h"
#include "request/token_buffer.h"

namespace baton {

// KV that a prefill worker leases or protects for some time after a request is done.
struct KvLease {
  // The lease or protection covers the full blocks of the prompt's first `tokens` tokens. 0: none.
  int32_t tokens = 0;
  absl::Duration duration{};
  // If false, the lease refers to the blocks, so they are not evicted before it ends. It ends early
  // if a request needs room or leases hold too many blocks. If true, this is a session protection
  // and not a lease: the blocks are evicted after unprotected blocks. The wire calls this `yields`.
  bool only_protects = false;
};

// Router → prefill worker. The worker makes KV for tokens [0, n-1) of the n >= 1 tokens of `spec`.
struct PrefillJob {
  RequestId request_id;
  RequestSpec spec{};
  // The worker that gets the KV. Empty for a prefill-only job, whose KV stays in the prefix cache.
  // For a streaming prompt it is the probable decode worker, or empty if none is known yet.
  WorkerAddress decode_worker{};
  // The prompt streams: PrefillAppend brings its next tokens, and the last append states the decode
  // worker. `spec` may have no tokens at first.
  bool streaming = false;
  KvLease lease{};
  LeaseHolder lease_holder{};  // the router that sent the job; set by the worker
};

// Router → prefill worker: the increment of a streaming prompt.
struct PrefillAppend {
  RequestId request_id;
  TokenBuffer tokens{};
  bool restart = false;  // drop all earlier tokens; the prompt begins with `tokens`
  bool last = false;     // the prompt is closed
  // The router sets the next four fields only with `last`. `decode_worker` and `lease` mean the
  // same as in PrefillJob.
  int32_t expected_new_tokens = 0;  // as RequestSpec::expected_tokens
  WorkerAddress decode_worker{};
  // The new offset, added to the time at which this append arrives. Unset: the job keeps its queue
  // order.
  std::optional<absl::Duration> arrival_offset{};
  KvLease lease{};
};

// Router → decode worker, after PrefillDone.
struct DecodeJob {
  RequestId request_id;
  RequestSpec spec{};
  ReservationRef reservation{};
  // The worker answers FAILED_PRECONDITION if its own incarnation differs.
  Incarnation decode_incarnation{};
  int32_t blocks = 0;  // as in PrefillDone
};

// Router → decode worker: the request for which the router wants the worker to keep room. Replaces
// the request that the router named before. There is no reply.
struct KeepRoom {
  // The name of the request in its next hand-off. Empty: the router no longer wants room.
  RequestId request_id;
  // Those of the ReserveRequest that will follow, as known by now.
  int32_t kv_tokens = 0;
  int32_t expected_new_tokens = 0;
  absl::Duration waited{};  // since the request was first refused for lack of room
};

}  // namespace baton
