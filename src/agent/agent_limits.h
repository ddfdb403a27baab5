// The limits of an agent graph.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace baton {

struct AgentLimits {
  // How long an output is kept after its request ended, for prompts that are submitted later.
  absl::Duration keep_output = absl::Minutes(2);
  // Upper bound on the bytes of kept outputs, and of failed attempts that may be repeated. Beyond
  // it, the owner with the most bytes (agent/shares.h) loses outputs.
  int64_t kept_bytes = int64_t{256} << 20;
  // How long prompts wait for an announced request to be submitted.
  absl::Duration wait_announced = absl::Minutes(2);
  // How long they wait for another submission after a refusal or a failure that may be retried,
  // beyond the retry delay that the client received.
  absl::Duration wait_retry = absl::Seconds(10);
  // Upper bound on the refused requests whose reasons are kept (RefusalTable).
  int32_t refused = 16384;
  // Upper bound on announced requests, of which each owner has a share (agent/shares.h).
  int32_t announced = 65536;
  // The same for the references of all streaming prompts, and for held outputs (RetryHolds).
  int64_t references = 65536;
};

}  // namespace baton
