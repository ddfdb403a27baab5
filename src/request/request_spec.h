// The parameters of a request, as all parts that serve the request read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "model/sampling_params.h"
#include "request/token_buffer.h"

namespace baton {

// The router makes a RequestSpec of a client's request. Prefill and decode jobs carry it. No other
// struct repeats its fields.
struct RequestSpec {
  // [0, n) of the prompt; for a streaming prompt, those known so far. In the DecodeJob of a resumed
  // request, the output of the lost decode worker follows.
  TokenBuffer tokens{};
  int32_t generated = 0;       // the number of last `tokens` that are output
  std::string cache_domain{};  // requests of one domain may share KV; `cache_salt` in the API
  std::string tenant{};        // the owner of the API key; empty: the router has no keys
  int32_t priority = 0;        // orders requests of one tenant (request/priority.h)
  // A worker adds this to the time at which the job arrives. Among one tenant's requests of equal
  // priority, the one with the earliest sum comes first.
  absl::Duration arrival_offset{};
  SamplingParams sampling{};
  // Expected tokens of the whole output (OutputLengths), at most sampling.max_tokens. Workers admit
  // by it. 0: no output.
  int32_t expected_tokens = 0;
  std::string traceparent{};  // the router's span (base/trace_context.h); empty: none

  size_t prompt_tokens() const { return tokens.size() - static_cast<size_t>(generated); }
};

}  // namespace baton
