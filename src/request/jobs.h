// What the router asks of workers. rpc/ turns these structs into protobuf.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "base/ids.h"
#include "request/request_spec.h"
#include "request/token_buffer.h"

namespace baton {

// KV that a prefill worker keeps for a while after a request is done.
struct KvLease {
  int32_t tokens = 0;  // of the prompt, from its beginning: their full blocks; 0: none
  absl::Duration duration{};
  bool yields = false;  // its blocks are not held, but evicted last: a session's, between two turns
};

// Router → prefill worker. KV is made for [0, n-1) of the n tokens of `spec`, n >= 1.
struct PrefillJob {
  RequestId request_id;
  RequestSpec spec{};
  // Where the KV goes; empty for PrefillOnly, which keeps it in the cache and moves nothing. Of a streaming prompt:
  // where it probably goes, or empty.
  WorkerAddress decode_worker{};
  // The prompt streams: its next tokens come by PrefillAppend, the last of which states where the KV goes. The spec
  // may have no tokens until then.
  bool open = false;
  KvLease lease{};
  LeaseHolder lease_holder{};  // the router that asks; the worker sets it
};

// Router → prefill worker: the increment of a streaming prompt.
struct PrefillAppend {
  RequestId request_id;
  TokenBuffer tokens{};
  bool restart = false;  // the tokens before are void: the prompt begins with these
  bool last = false;     // the prompt is complete; what follows is set only then, as in PrefillJob
  int32_t max_new_tokens = 0;
  WorkerAddress decode_worker{};
  std::optional<absl::Duration> arrival_offset{};  // the new one; unset: the job keeps its queue order
  KvLease lease{};
};

// Router → decode worker, after PrefillDone.
struct DecodeJob {
  RequestId request_id;
  RequestSpec spec{};
  ReservationRef reservation{};
  Incarnation decode_incarnation{};  // FAILED_PRECONDITION if this process is another
  int32_t blocks = 0;                // as committed
};

}  // namespace baton
