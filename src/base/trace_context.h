// W3C Trace Context (https://www.w3.org/TR/trace-context/). The header `traceparent` joins the
// spans of several services into one trace.
//
// Baton ignores the header `tracestate`. Services forward `tracestate` to the services that they
// call. Workers call no further service and do not interpret vendors' entries.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace baton {

struct TraceContext {
  // 32 lower-case hexadecimal digits, not all zero. Empty if there is no trace.
  std::string trace_id{};
  // 16 lower-case hexadecimal digits, not all zero. The span of the caller.
  std::string span_id{};
  // The caller records this trace.
  bool sampled = false;
  // The last seven bytes of `trace_id` are random (level 2 of the standard).
  bool random = false;
};

// Parses a `traceparent` header. Returns nullopt for a malformed header, which the standard
// requires receivers to ignore.
std::optional<TraceContext> ParseTraceparent(std::string_view header);
// Returns the trace id of a `traceparent` header. Returns an empty string if the header is
// malformed.
std::string TraceIdOf(std::string_view traceparent);
// Formats a header of version 00. REQUIRES: `context.trace_id` is not empty.
std::string ToTraceparent(const TraceContext& context);

// Returns a new span for the service that handles a call. The span belongs to the caller's trace,
// or to a new trace if `traceparent` is empty or malformed.
TraceContext BeginSpan(std::string_view traceparent);

}  // namespace baton
