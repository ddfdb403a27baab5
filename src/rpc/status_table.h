// The table of errors that clients receive. gRPC and HTTP answer from it: the code, the HTTP
// status, the body, and whether and when a client should repeat its call.
#pragma once

#include <span>

#include "absl/status/status.h"

namespace baton {

enum class Retry {
  kAfter,     // later: the answer has a retry delay (base/retry.h)
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

}  // namespace baton
