// The answers of workers to the router's jobs. rpc/ converts these structs to protobuf.
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

// A step that computed tokens of one prompt. Several such steps may be merged into one, with the
// pauses between them.
struct PrefillStep {
  // How long before the PrefillDone the step began and ended. These are durations because the
  // clocks of worker and router differ.
  absl::Duration began, ended;
  // Computed for this request. 0 if the request gained only tokens that other requests of the step
  // computed, or that were copied back from staging.
  int32_t tokens = 0;
  int32_t steps = 1;
};
// Upper bound on the size of PrefillDone::steps.
inline constexpr size_t kMaxPrefillSteps = 64;

// Prefill worker → router: the next step that computes tokens of the complete prompt has begun, or
// the prompt needs no step. Comes once, before PrefillDone, and before RequestFailed if the request
// failed after its start.
struct PrefillStarted {
  RequestId request_id;
};

// Prefill worker → router: the KV of the prompt is at the decode worker. For a prefill-only job the
// KV is in the prefix cache.
struct PrefillDone {
  RequestId request_id;
  ReservationRef reservation;      // for the DecodeJob; zero for a prefill-only job
  Incarnation decode_incarnation;  // the decode worker's process that holds the blocks
  int32_t blocks = 0;              // in the prompt's block table
  // The sum of the four counters is the prompt's tokens less one. For a prefill-only job it is
  // rounded down to whole blocks.
  int32_t cached_tokens = 0;    // ready or staged when these tokens arrived; excludes shared_tokens
  int32_t shared_tokens = 0;    // computed or copied back by another request after that
  int32_t computed_tokens = 0;  // computed by this request
  int32_t held_tokens = 0;      // held by the decode worker, and not counted above
  int64_t bytes_pushed = 0;     // includes those pushed while the prompt streamed
  // The times of a streaming prompt begin with its last append.
  absl::Duration queued;   // until the prompt's first step began
  absl::Duration compute;  // from then until the last token was computed, excluding `copied`
  absl::Duration copied;   // in the same interval: copies of evicted KV, in the prompt's steps
  absl::Duration handoff;  // from then until the decode worker acknowledged the commit
  // In the order of time. The steps of a streaming prompt include those before its last append.
  std::vector<PrefillStep> steps;
};

// Decode worker → all routers: room for requests that the worker refused.
struct RoomReport {
  // Number of refused requests that would fit now. They may be any router's. A router lets this
  // number of its requests ask again, in the order of its queue.
  int64_t requests = 0;
  // The name of the request that was to get kept room (KeepRoom) and would fit now. Empty: none.
  RequestId kept{};
  bool empty() const { return requests == 0 && kept.empty(); }
};

enum class FinishReason { kStop, kLength, kCancelled };

// The log probabilities of a prompt's tokens, for a request with SamplingParams::prompt_logprobs.
struct PromptLogprobs {
  std::vector<TokenId> tokens;          // the prompt, [n]
  std::vector<TokenLogprobs> logprobs;  // [n - 1]: element i is that of tokens[i + 1]
};

// Decode worker → router: the output of one step for one request. The worker holds back text that
// may be half a UTF-8 character or the beginning of a stop string. The tokens and the text of one
// update therefore need not correspond.
struct TokenUpdate {
  RequestId request_id;
  std::vector<TokenId> tokens;
  std::vector<TokenLogprobs> logprobs;  // one for each token if the request wants them
  std::string text;
  std::optional<FinishReason> finish;  // set on the last update
  // The prompt's last tokens, if the prompt ends inside a character. The text of the output then
  // begins with that character. The router sets them on the first update.
  std::vector<TokenId> before{};
  // From Start until the first step with the request. Set on an update of its own.
  std::optional<absl::Duration> queued{};
  // On the first update with tokens, or on the last update of a request without output, if the
  // request wants them.
  std::optional<PromptLogprobs> prompt{};
};

// `retry_after` of a worker that shuts down. After that time the worker has probably ended, or
// another worker has replaced it.
inline constexpr absl::Duration kDrainRetry = absl::Seconds(1);

// A worker of either role → router: the request has ended, and the worker keeps nothing of it.
struct RequestFailed {
  RequestId request_id;
  // The router may send the request again after UNAVAILABLE and RESOURCE_EXHAUSTED.
  absl::Status status;
  // The shortest wait before that. Zero if the worker states none. A full decode worker states
  // none, because it reports when it has room.
  absl::Duration retry_after;
  // From a prefill worker: the decode worker is full, or cannot be reached.
  bool no_room_to_decode = false;
};

}  // namespace baton
