// Ties a call to its request, so that a call which ends early cancels the request, whichever is noticed first.
#pragma once

#include <mutex>

#include "server/router.h"

namespace baton {

// Calls the router with no lock held that a sink could need.
class RequestHandle {
 public:
  explicit RequestHandle(Router* router) : router_(router) {}

  // The router has accepted the request.
  void Submitted(const RequestId& id) {
    {
      const std::lock_guard lock(mutex_);
      id_ = id;
      if (!cancelled_) return;
    }
    router_->Cancel(id);
  }

  bool cancelled() const {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }

  void Cancel() {
    RequestId id;
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
      id = id_;
    }
    if (!id.empty()) router_->Cancel(id);
  }

 private:
  Router* const router_;
  mutable std::mutex mutex_;  // guards what follows
  RequestId id_;              // empty: not submitted
  bool cancelled_ = false;
};

}  // namespace baton
