// The times at which a request reached the stages of its life in a router.
#pragma once

#include "absl/time/time.h"

namespace baton {

// InfiniteFuture marks a stage that the request has not reached.
struct RequestStages {
  absl::Time arrived = absl::InfiniteFuture();
  // The session gate admitted the request. Never set for a request without a session.
  absl::Time admitted = absl::InfiniteFuture();
  absl::Time complete = absl::InfiniteFuture();     // all tokens of the prompt are known
  absl::Time placed = absl::InfiniteFuture();       // sent to a prefill worker
  absl::Time prefilled = absl::InfiniteFuture();    // PrefillDone arrived
  absl::Time first_token = absl::InfiniteFuture();  // the first update with tokens arrived
  absl::Time ended = absl::InfiniteFuture();

  bool over() const { return ended != absl::InfiniteFuture(); }
};

}  // namespace baton
