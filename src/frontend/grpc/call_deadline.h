// Distinguishes a gRPC call whose deadline passed from one that its client cancelled.
//
// gRPC reports both as a cancelled call. A client that applies its deadline itself resets the
// stream, and its reset may arrive before the server's own timer. The client also rounds up the
// timeout that it sends, by at most 1 %.
#pragma once

#include <algorithm>

#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "rpc/grpc_deadline.h"
#include "shell/router.h"

namespace baton {

// Returns why a call has ended that was allowed to take `allowed` and has `left` of it.
inline CallEnd EndOf(absl::Duration allowed, absl::Duration left) {
  if (left == absl::InfiniteDuration()) return CallEnd::kCancelled;
  constexpr absl::Duration kShortest = absl::Milliseconds(5);
  return left <= std::max(allowed / 100, kShortest) ? CallEnd::kDeadline : CallEnd::kCancelled;
}

class CallDeadline {
 public:
  // Make this when the call begins. `context` must outlive this object.
  explicit CallDeadline(const grpc::CallbackServerContext& context)
      : context_(context), allowed_(TimeUntil(context.raw_deadline())) {}

  // REQUIRES: the call has just ended.
  CallEnd End() const { return EndOf(allowed_, TimeUntil(context_.raw_deadline())); }

 private:
  const grpc::CallbackServerContext& context_;
  const absl::Duration allowed_;
};

}  // namespace baton
