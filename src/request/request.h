// What the router asks of workers and what they answer. rpc/ turns these into protobuf.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "model/sampling_params.h"

namespace baton {

inline constexpr int32_t kMaxPriority = 1000;  // of clients: [-kMaxPriority, kMaxPriority]
// Below all of clients: such a prefill job runs when no other waits, and may starve.
inline constexpr int32_t kBackgroundPriority = -kMaxPriority - 1;
inline bool IsBackground(int32_t priority) { return priority <= kBackgroundPriority; }

// KV that a prefill worker keeps for a while once a request is done, also when it is not done for the cache alone.
struct KvLease {
  int32_t tokens = 0;  // of the prompt, from its beginning: their full blocks; 0: none
  absl::Duration duration{};
  bool yields = false;  // its blocks are not held, but evicted last: a session's, between two turns
};

// Router → prefill worker.
struct PrefillJob {
  RequestId request_id;
  std::vector<TokenId> tokens;  // the whole prompt, [0, n), n >= 1; KV is made for [0, n-1)
  std::string cache_salt;
  std::string tenant{};  // whose key it came with; tenants take turns. Empty: the router asks for none
  int32_t max_new_tokens = 0;
  int32_t priority = 0;  // of a tenant's the higher runs first
  // Among equal priorities it counts as having come this much later than it does; negative: earlier.
  absl::Duration handicap{};
  // Where the KV goes; empty for PrefillOnly, which keeps it in the cache and moves nothing. Of an open job: where it
  // probably goes, or empty.
  WorkerAddress decode_worker;
  // More tokens come by PrefillAppend, the last of which says where the KV goes; `tokens` may be empty until then.
  bool open = false;
  KvLease lease{};
  LeaseHolder lease_holder{};  // who asks; the worker knows
  std::string traceparent{};   // the router's span (base/trace_context.h); empty: none
};

// Router → prefill worker: the next tokens of an open job.
struct PrefillAppend {
  RequestId request_id;
  std::vector<TokenId> tokens;
  bool restart = false;  // what came before is void: the prompt begins with these tokens
  bool last = false;     // the job is open no more; what follows is set only then, as in PrefillJob
  int32_t max_new_tokens = 0;
  WorkerAddress decode_worker;
  std::optional<absl::Duration> handicap{};  // the new one; unset: the job keeps its place
  KvLease lease{};
};

// A time in which a step computed tokens of a prompt, or several such steps with the pauses between them. Told by how
// long it lies before the PrefillDone that tells it, since clocks differ.
struct PrefillStep {
  absl::Duration began, ended;
  int32_t tokens = 0;  // computed for this request; 0: only such as it shares with others of the step
  int32_t steps = 1;
};
inline constexpr size_t kMaxPrefillSteps = 64;  // of one request

// Prefill worker → router.
struct PrefillDone {
  RequestId request_id;
  ReservationRef reservation;      // what Start must name; zero for PrefillOnly
  Incarnation decode_incarnation;  // which process holds the blocks
  int32_t blocks = 0;              // in the prompt's block table
  int32_t cached_tokens = 0;       // found ready in the prefix cache, or brought back to it
  int32_t shared_tokens = 0;       // promised by another request and waited for
  int32_t computed_tokens = 0;     // cached + shared + computed <= n-1: what the decode worker held needs no compute
  int64_t bytes_pushed = 0;        // with those that went ahead while it was open
  // Of an open job from its last append on.
  absl::Duration queued;           // until the first step took it up
  absl::Duration compute;          // from then until its last token was computed, but for `copied`
  absl::Duration copied;           // of that time: KV to and from where evicted blocks are staged, in its steps
  absl::Duration handoff;          // from then until the commit was acknowledged
  std::vector<PrefillStep> steps;  // in order, those of an open job too
};

// Router → decode worker, after PrefillDone.
struct DecodeJob {
  RequestId request_id;
  ReservationRef reservation;
  Incarnation decode_incarnation;  // FAILED_PRECONDITION if this process is another
  int32_t blocks = 0;              // as committed
  std::vector<TokenId> tokens;     // the whole prompt, [0, n)
  std::string cache_salt;
  SamplingParams sampling;
  std::string tenant{};       // as in PrefillJob
  int32_t priority = 0;       // of a tenant's the higher goes first
  absl::Duration handicap{};  // it counts as having come this much later than it does; negative: earlier
  std::string traceparent{};  // as in PrefillJob
};

enum class FinishReason { kStop, kLength, kCancelled };

// Decode worker → router: what one step made for one request. Text is held back while it may be half a UTF-8 character
// or the start of a stop string, so tokens and text of one update need not correspond.
struct TokenUpdate {
  RequestId request_id;
  std::vector<TokenId> tokens;
  std::vector<TokenLogprobs> logprobs;  // one per token where asked for
  std::string text;
  std::optional<FinishReason> finish;  // set on the last update
  // On the first, until it leaves the worker: from Start until a step took the request up.
  std::optional<absl::Duration> queued{};
};

// How long a worker that shuts down is left alone: it may have ended by then, or another have come in its place.
inline constexpr absl::Duration kDrainRetry = absl::Seconds(1);

// Either worker → router: the request is over and nothing of it is left.
// UNAVAILABLE and RESOURCE_EXHAUSTED may be retried, after `retry_after`.
struct RequestFailed {
  RequestId request_id;
  absl::Status status;
  absl::Duration retry_after;
  bool no_room_to_decode = false;  // from a prefill worker: not it but the decode worker is full, or not reached
};

}  // namespace baton
