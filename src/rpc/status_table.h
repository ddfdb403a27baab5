// The table of errors that clients receive. gRPC and HTTP answer from it: the code, the HTTP
// status, the body, and whether and when a client should repeat its call.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace baton {

enum class Retry {
  kAfter,     // later: the answer has a retry delay
  kNever,     // it would fail again, or cost the same work again: HTTP has "x-should-retry: false"
  kUnstated,  // the answer has neither
};

struct StatusRow {
  absl::StatusCode code;
  int http;
  const char* type;  // of OpenAI's error
  const char* name;  // `code` of OpenAI's error
  Retry retry;
};

// The rows of all codes but OK, in the order of the codes.
std::span<const StatusRow> StatusTable();
// REQUIRES: the code is not OK. An unassigned code has the row of UNKNOWN.
const StatusRow& StatusRowOf(absl::StatusCode code);

// Returns the retry delay of an answer with this status. `known` is the delay that the refusal
// states, or zero. Returns zero if the answer has no delay.
absl::Duration RetryDelayOf(const absl::Status& status, absl::Duration known);

}  // namespace baton
