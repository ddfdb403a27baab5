#include "model/sampling_params.h"

#include <cmath>
#include <cstddef>
#include <string>

#include "base/status.h"
#include "text/utf8.h"

namespace baton {
namespace {

constexpr size_t kMaxStopStrings = 64;
constexpr size_t kMaxStopBytes = 1024;
constexpr size_t kMaxStopIds = 256;

absl::Status Reject(const absl::AlphaNum& field, const absl::AlphaNum& value, const absl::AlphaNum& limit) {
  return absl::InvalidArgumentError(absl::StrCat("sampling.", field, " is ", value, ", expected ", limit));
}

// NaN compares false with every bound, so it is never in range.
absl::Status InRange(const absl::AlphaNum& field, float value, float low, float high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Reject(field, value, absl::StrCat("a number in [", low, ", ", high, "]"));
}

absl::Status ValidateStops(const SamplingParams& params, int64_t vocab) {
  if (params.stop.size() > kMaxStopStrings) {
    return Reject("stop", absl::StrCat(params.stop.size(), " strings"), absl::StrCat("at most ", kMaxStopStrings));
  }
  for (size_t i = 0; i < params.stop.size(); ++i) {
    const std::string& stop = params.stop[i];
    const std::string field = absl::StrCat("stop[", i, "]");
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      return Reject(field, absl::StrCat(stop.size(), " bytes"), absl::StrCat("1 to ", kMaxStopBytes));
    }
    if (ValidUtf8Prefix(stop) != stop.size()) return Reject(field, "not UTF-8", "UTF-8 text");
  }
  if (params.stop_ids.size() > kMaxStopIds) {
    return Reject("stop_ids", absl::StrCat(params.stop_ids.size(), " ids"), absl::StrCat("at most ", kMaxStopIds));
  }
  for (size_t i = 0; i < params.stop_ids.size(); ++i) {
    const TokenId id = params.stop_ids[i];
    if (id < 0 || id >= vocab) {
      return Reject(absl::StrCat("stop_ids[", i, "]"), id, absl::StrCat("a token id in [0, ", vocab, ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const SamplingParams& params, int64_t vocab) {
  RETURN_IF_ERROR(InRange("temperature", params.temperature, 0, 100));
  if (params.top_k < 0) return Reject("top_k", params.top_k, "0 (off) or more");
  if (!(params.top_p > 0 && params.top_p <= 1)) return Reject("top_p", params.top_p, "a number in (0, 1]");
  if (!(params.min_p >= 0 && params.min_p < 1)) return Reject("min_p", params.min_p, "a number in [0, 1)");
  RETURN_IF_ERROR(InRange("repetition_penalty", params.repetition_penalty, 0.01f, 100));
  RETURN_IF_ERROR(InRange("presence_penalty", params.presence_penalty, -2, 2));
  RETURN_IF_ERROR(InRange("frequency_penalty", params.frequency_penalty, -2, 2));
  if (params.max_tokens < 1) return Reject("max_tokens", params.max_tokens, "1 or more");
  if (params.logprobs && (*params.logprobs < 0 || *params.logprobs > kMaxTopLogprobs)) {
    return Reject("logprobs", *params.logprobs, absl::StrCat("a number in [0, ", kMaxTopLogprobs, "]"));
  }
  return ValidateStops(params, vocab);
}

}  // namespace baton
