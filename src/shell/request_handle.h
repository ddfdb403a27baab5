// Connects a call to its request, so that the end of the call cancels or detaches the request. The
// call may end before or after the router accepts the request.
#pragma once

#include <mutex>
#include <optional>

#include "shell/router.h"

namespace baton {

// Thread-safe. Calls the router without a lock that a sink could need.
class RequestHandle {
 public:
  explicit RequestHandle(Router* router) : router_(router) {}

  // Call this after the router has accepted the request.
  void Submitted(const RequestTicket& ticket) {
    {
      const std::lock_guard lock(mutex_);
      ticket_ = ticket;
      if (!cancelled_ && !detached_) return;
    }
    cancelled() ? router_->Cancel(ticket) : router_->Detach(ticket);
  }

  bool cancelled() const {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }

  void Cancel() {
    std::optional<RequestTicket> ticket;
    {
      const std::lock_guard lock(mutex_);
      if (detached_) return;
      cancelled_ = true;
      ticket = ticket_;
    }
    if (ticket) router_->Cancel(*ticket);
  }

  // Detaches the request, as Router::Detach does. The end of the call then no longer cancels it.
  void Detach() {
    std::optional<RequestTicket> ticket;
    {
      const std::lock_guard lock(mutex_);
      if (cancelled_) return;
      detached_ = true;
      ticket = ticket_;
    }
    if (ticket) router_->Detach(*ticket);
  }

 private:
  Router* const router_;
  mutable std::mutex mutex_;             // guards the members below
  std::optional<RequestTicket> ticket_;  // unset until the request is submitted
  bool cancelled_ = false;
  bool detached_ = false;
};

}  // namespace baton
