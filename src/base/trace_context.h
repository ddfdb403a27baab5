// W3C Trace Context (https://www.w3.org/TR/trace-context/): the header `traceparent`, which joins what several services
// do for one call into one trace.
//
// `tracestate` is not read. It is for the services that a call is passed on to; workers are the last of them and know
// no vendor's entries, so it would go nowhere.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace baton {

struct TraceContext {
  std::string trace_id{};  // 32 lower-case hexadecimal digits, not all zero; empty: none
  std::string span_id{};   // 16 of them: who calls
  bool sampled = false;    // somebody records this trace
  bool random = false;     // the trace id's last seven bytes are random (level 2 of the standard)
};

// Nothing: it is malformed, and by the standard to be ignored.
std::optional<TraceContext> ParseTraceparent(std::string_view header);
// Its trace id; empty: it is malformed.
std::string TraceIdOf(std::string_view traceparent);
// As version 00.
std::string ToTraceparent(const TraceContext& context);

// What serves a call: a span of its own in the caller's trace, or in a new one if `traceparent` is empty or malformed.
TraceContext BeginSpan(std::string_view traceparent);

}  // namespace baton
