// What workers answer to the router's jobs. rpc/ turns these structs into protobuf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "model/sampling_params.h"

namespace baton {

// A time in which a step computed tokens of a prompt, or several such steps with the pauses between them. `began` and
// `ended` are how long before the PrefillDone that reports it, since clocks differ.
struct PrefillStep {
  absl::Duration began, ended;
  int32_t tokens = 0;  // computed for this request; 0: it shared the tokens of other requests of the step
  int32_t steps = 1;
};
inline constexpr size_t kMaxPrefillSteps = 64;  // of one request

// Prefill worker → router: the KV of the prompt is where the job wanted it.
struct PrefillDone {
  RequestId request_id;
  ReservationRef reservation;      // what Start must name; zero for PrefillOnly
  Incarnation decode_incarnation;  // which process holds the blocks
  int32_t blocks = 0;              // in the prompt's block table
  int32_t cached_tokens = 0;       // found ready in the prefix cache, or brought back to it
  int32_t shared_tokens = 0;       // promised by another request and waited for
  int32_t computed_tokens = 0;     // cached + shared + computed <= n-1: what the decode worker held needs no compute
  int64_t bytes_pushed = 0;        // with those that went ahead while the prompt streamed
  // Times of a streaming prompt begin with its last append.
  absl::Duration queued;           // until the first step took it up
  absl::Duration compute;          // from then until its last token was computed, but for `copied`
  absl::Duration copied;           // of that time: KV to and from where evicted blocks are staged, in its steps
  absl::Duration handoff;          // from then until the commit was acknowledged
  std::vector<PrefillStep> steps;  // in order; a streaming prompt reports those before its last append, too
};

enum class FinishReason { kStop, kLength, kCancelled };

// Decode worker → router: the output of one step for one request. The worker holds text back while it may be half a
// UTF-8 character or the start of a stop string, so tokens and text of one update need not correspond.
struct TokenUpdate {
  RequestId request_id;
  std::vector<TokenId> tokens;
  std::vector<TokenLogprobs> logprobs;  // one per token where asked for
  std::string text;
  std::optional<FinishReason> finish;  // set on the last update
  // On the first, until it leaves the worker: from Start until a step took the request up.
  std::optional<absl::Duration> queued{};
};

// How long the router leaves a worker alone that shuts down. By then it may have ended, or another worker has come.
inline constexpr absl::Duration kDrainRetry = absl::Seconds(1);

// Either worker → router: the request is over, and the worker keeps nothing of it. The router may retry UNAVAILABLE
// and RESOURCE_EXHAUSTED after `retry_after`; without it, a full decode worker reports when it has room.
struct RequestFailed {
  RequestId request_id;
  absl::Status status;
  absl::Duration retry_after;
  bool no_room_to_decode = false;  // from a prefill worker: the decode worker is full, or cannot be reached
};

}  // namespace baton
