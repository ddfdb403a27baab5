#include "shell/request_log.h"

#include <cmath>

#include "base/logging.h"
#include "base/strings.h"

namespace baton {
namespace {

// Milliseconds, rounded to microseconds.
double Milliseconds(absl::Duration duration) { return std::round(absl::ToDoubleMicroseconds(duration)) / 1000; }

std::string_view NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "";
}

// Upper bound on the text of an error, in bytes. A worker may send a text of any length.
constexpr size_t kMostErrorBytes = 500;

std::string Bounded(std::string_view text) {
  return text.size() <= kMostErrorBytes ? std::string(text) : StrCat(text.substr(0, kMostErrorBytes), "...");
}

}  // namespace

void LogRequestEnd(const RequestOutcome& outcome) {
  LogFields(spdlog::level::info, "a request ended",
            {{"request", outcome.id},
             {"call", outcome.call},
             {"trace_id", outcome.trace_id},
             {"tenant", outcome.tenant},
             {"model", outcome.model},
             {"code", absl::StatusCodeToString(outcome.status.code())},
             {"error", Bounded(Message(outcome.status))},
             {"finish", outcome.status.ok() ? NameOf(outcome.finish) : ""},
             {"prompt_tokens", int64_t{outcome.prompt_tokens}},
             {"cached_tokens", int64_t{outcome.cached_tokens}},
             {"completion_tokens", int64_t{outcome.completion_tokens}},
             {"resumed", int64_t{outcome.resumed}},
             {"hedged", int64_t{outcome.hedged}},
             {"moved", int64_t{outcome.moved}},
             {"upstream_ms", Milliseconds(outcome.times.upstream)},
             {"queue_ms", Milliseconds(outcome.times.queue)},
             {"prefill_ms", Milliseconds(outcome.times.prefill)},
             {"handoff_ms", Milliseconds(outcome.times.handoff)},
             {"decode_queue_ms", Milliseconds(outcome.times.decode_queue)},
             {"first_step_ms", Milliseconds(outcome.times.first_step)},
             {"decode_ms", Milliseconds(outcome.times.decode)},
             {"first_token_ms", Milliseconds(outcome.first_token)},
             {"total_ms", Milliseconds(outcome.total)},
             {"prefill_worker", outcome.prefill_worker},
             {"decode_worker", outcome.decode_worker}});
}

void LogJobEnd(const RequestId& id, const std::string& trace_id, absl::StatusCode code) {
  LogFields(spdlog::level::debug, "a job ended",
            {{"request", id}, {"trace_id", trace_id}, {"code", absl::StatusCodeToString(code)}});
}

void LogPrefilled(const PrefillDone& done, const std::string& trace_id) {
  LogFields(spdlog::level::debug, "a prompt is prefilled",
            {{"request", done.request_id},
             {"trace_id", trace_id},
             {"cached_tokens", int64_t{done.cached_tokens}},
             {"shared_tokens", int64_t{done.shared_tokens}},
             {"computed_tokens", int64_t{done.computed_tokens}},
             {"held_tokens", int64_t{done.held_tokens}},
             {"bytes_pushed", done.bytes_pushed},
             {"queue_ms", Milliseconds(done.queued)},
             {"prefill_ms", Milliseconds(done.compute)},
             {"copied_ms", Milliseconds(done.copied)},
             {"handoff_ms", Milliseconds(done.handoff)}});
}

}  // namespace baton
