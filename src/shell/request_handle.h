// Connects a call to its request, so that the end of the call cancels or detaches the request. The
// call may end before or after the router accepts the request.
#pragma once

#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "shell/router.h"

namespace baton {

// Thread-safe. Calls the router without a lock that a sink could need.
class RequestHandle {
 public:
  explicit RequestHandle(Router* router) : router_(router) {}

  // Call this after the router has accepted the request.
  void Submitted(const RequestTicket& ticket) {
    std::optional<CallEnd> ended;
    absl::Status failed;
    {
      const std::lock_guard lock(mutex_);
      ticket_ = ticket;
      if (!ended_ && failed_.ok() && !detached_) return;
      ended = ended_;
      failed = failed_;
    }
    if (ended) return router_->Cancel(ticket, *ended);
    failed.ok() ? router_->Detach(ticket) : router_->Fail(ticket, failed);
  }

  // Returns CANCELLED or DEADLINE_EXCEEDED if the call has ended.
  absl::Status CheckCall() const {
    const std::lock_guard lock(mutex_);
    if (!ended_) return absl::OkStatus();
    if (ended_ == CallEnd::kCancelled) return absl::CancelledError("the client cancelled");
    return absl::DeadlineExceededError("the deadline passed before the prompt was read");
  }

  void Cancel(CallEnd why = CallEnd::kCancelled) {
    std::optional<RequestTicket> ticket;
    {
      const std::lock_guard lock(mutex_);
      if (detached_) return;
      ended_ = why;
      ticket = ticket_;
    }
    if (ticket) router_->Cancel(*ticket, why);
  }

  // Ends the request with the error of another request of the call, which has ended the call.
  void Fail(const absl::Status& status) {
    std::optional<RequestTicket> ticket;
    {
      const std::lock_guard lock(mutex_);
      if (ended_ || detached_) return;
      failed_ = status;
      ticket = ticket_;
    }
    if (ticket) router_->Fail(*ticket, status);
  }

  // Detaches the request, as Router::Detach does. The end of the call then no longer cancels it.
  void Detach() {
    std::optional<RequestTicket> ticket;
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      detached_ = true;
      ticket = ticket_;
    }
    if (ticket) router_->Detach(*ticket);
  }

 private:
  Router* const router_;
  mutable std::mutex mutex_;             // guards the members below
  std::optional<RequestTicket> ticket_;  // unset until the request is submitted
  std::optional<CallEnd> ended_;         // unset unless Cancel was called
  absl::Status failed_;                  // OK unless Fail was called
  bool detached_ = false;
};

}  // namespace baton
