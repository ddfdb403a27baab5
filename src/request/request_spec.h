// What a request asks for, as every part that serves it reads it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "model/sampling_params.h"
#include "request/token_buffer.h"

namespace baton {

// The router makes it of a client's request; prefill and decode jobs carry it. No other struct repeats its fields.
struct RequestSpec {
  TokenBuffer tokens{};        // the prompt, [0, n); of a streaming prompt those that are known so far
  std::string cache_domain{};  // requests of one domain may share KV; `cache_salt` in the API
  std::string tenant{};        // the owner of the API key; empty: the router asks for no keys
  int32_t priority = 0;        // of a tenant's requests the higher runs first (request/priority.h)
  // Added to the time at which a worker gets the job: among equal priorities the earlier sum runs first.
  absl::Duration arrival_offset{};
  SamplingParams sampling{};  // max_tokens: upper bound on the output
  std::string traceparent{};  // the router's span (base/trace_context.h); empty: none
};

}  // namespace baton
