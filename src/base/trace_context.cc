#include "base/trace_context.h"

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton {
namespace {

// "VERSION-TRACE-SPAN-FLAGS"
constexpr size_t kVersionEnd = 2, kTraceEnd = 35, kSpanEnd = 52, kSize = 55;
constexpr int kSampled = 1, kRandom = 2;

bool IsHex(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return ('0' <= c && c <= '9') || ('a' <= c && c <= 'f'); });
}

// Returns whether `text` is a valid id: hexadecimal and not all zero.
bool IsId(std::string_view text) { return IsHex(text) && text.find_first_not_of('0') != std::string_view::npos; }

int HexDigit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

// Generates 16 random hexadecimal digits that are not all zero.
std::string DrawHalf() {
  std::random_device random;
  const uint64_t bits = uint64_t{random()} << 32 | random();
  return absl::StrCat(absl::Hex(std::max<uint64_t>(bits, 1), absl::kZeroPad16));
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(std::string_view header) {
  if (header.size() < kSize) return std::nullopt;
  const std::string_view version = header.substr(0, kVersionEnd);
  if (!IsHex(version) || version == "ff") return std::nullopt;
  // A later version may append fields after another dash. It begins with the fields of version 00.
  if (header.size() > kSize && (version == "00" || header[kSize] != '-')) return std::nullopt;
  for (const size_t dash : {kVersionEnd, kTraceEnd, kSpanEnd}) {
    if (header[dash] != '-') return std::nullopt;
  }
  const std::string_view trace = header.substr(kVersionEnd + 1, 32), span = header.substr(kTraceEnd + 1, 16);
  const std::string_view flags = header.substr(kSpanEnd + 1, 2);
  if (!IsId(trace) || !IsId(span) || !IsHex(flags)) return std::nullopt;
  const int bits = HexDigit(flags[1]);
  return TraceContext{.trace_id = std::string(trace),
                      .span_id = std::string(span),
                      .sampled = (bits & kSampled) != 0,
                      .random = (bits & kRandom) != 0};
}

std::string TraceIdOf(std::string_view traceparent) {
  return ParseTraceparent(traceparent).value_or(TraceContext{}).trace_id;
}

std::string ToTraceparent(const TraceContext& context) {
  BATON_CHECK(!context.trace_id.empty(), "no trace");
  const int flags = (context.sampled ? kSampled : 0) | (context.random ? kRandom : 0);
  return absl::StrCat("00-", context.trace_id, "-", context.span_id, "-0", flags);
}

TraceContext BeginSpan(std::string_view traceparent) {
  TraceContext span = ParseTraceparent(traceparent).value_or(TraceContext{});
  if (span.trace_id.empty()) {
    span.trace_id = DrawHalf() + DrawHalf();
    span.random = true;
  }
  span.span_id = DrawHalf();
  return span;
}

}  // namespace baton
