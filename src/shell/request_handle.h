// Ties a call to its request, so that a call which ends early cancels the request, whichever is noticed first.
#pragma once

#include <mutex>
#include <optional>

#include "shell/router.h"

namespace baton {

// Calls the router with no lock held that a sink could need.
class RequestHandle {
 public:
  explicit RequestHandle(Router* router) : router_(router) {}

  // The router has accepted the request.
  void Submitted(const RequestTicket& ticket) {
    {
      const std::lock_guard lock(mutex_);
      ticket_ = ticket;
      if (!cancelled_ && !let_go_) return;
    }
    cancelled() ? router_->Cancel(ticket) : router_->LetGo(ticket);
  }

  bool cancelled() const {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }

  void Cancel() {
    std::optional<RequestTicket> ticket;
    {
      const std::lock_guard lock(mutex_);
      if (let_go_) return;
      cancelled_ = true;
      ticket = ticket_;
    }
    if (ticket) router_->Cancel(*ticket);
  }

  // As Router::LetGo. That the call ends then means nothing for the request.
  void LetGo() {
    std::optional<RequestTicket> ticket;
    {
      const std::lock_guard lock(mutex_);
      if (cancelled_) return;
      let_go_ = true;
      ticket = ticket_;
    }
    if (ticket) router_->LetGo(*ticket);
  }

 private:
  Router* const router_;
  mutable std::mutex mutex_;             // guards what follows
  std::optional<RequestTicket> ticket_;  // none: not submitted
  bool cancelled_ = false;
  bool let_go_ = false;
};

}  // namespace baton
