// When a request reached each stage of its way through a router.
#pragma once

#include "absl/time/time.h"

namespace baton {

// InfiniteFuture: not yet, or never.
struct RequestStages {
  absl::Time arrived = absl::InfiniteFuture();
  absl::Time admitted = absl::InfiniteFuture();     // its session had its turn; never without one
  absl::Time complete = absl::InfiniteFuture();     // all tokens of its prompt were known
  absl::Time placed = absl::InfiniteFuture();       // a prefill worker got it
  absl::Time prefilled = absl::InfiniteFuture();    // PrefillDone came
  absl::Time first_token = absl::InfiniteFuture();  // the first update with tokens came
  absl::Time ended = absl::InfiniteFuture();

  bool over() const { return ended != absl::InfiniteFuture(); }
};

}  // namespace baton
