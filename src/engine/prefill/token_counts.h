// The sources of the KV of prompts, counted in tokens when their requests end.
#pragma once

#include <cstdint>

#include "engine/prefill/prompt.h"

namespace baton {

// The tokens of ended requests by the source of their KV. For a request of n >= 1 tokens:
//
//   computed + cached + shared + host + disk + held + not_reached = n - 1
//
// The last token has no KV before it is decoded, so no source counts it. The tokens of a step that
// runs when the request ends count as computed.
struct PrefillTokens {
  // These six are those of PrefillCounters. Tokens count as computed whatever the request's end.
  int64_t computed = 0;
  int64_t dropped = 0;  // computed in addition to the n - 1
  int64_t cached = 0;
  int64_t shared = 0;
  int64_t host = 0;
  int64_t disk = 0;
  // The decode worker held them, so this worker needed no KV for them. Excludes tokens that the
  // other sources count.
  int64_t held = 0;
  // Without KV: the request ended earlier, or it was prefill-only and these follow its last full
  // block.
  int64_t not_reached = 0;

  PrefillTokens& operator+=(const PrefillTokens& other);
};

// Returns the tokens of a request that ends now.
PrefillTokens TokensOf(const PrefillPrompt& prompt);

}  // namespace baton
