#include "frontend/http/http_shared.h"

namespace baton {

void HttpShared::RequestBegins() {
  const std::lock_guard lock(mutex_);
  ++requests_;
}

void HttpShared::RequestEnds() {
  const std::lock_guard lock(mutex_);
  if (--requests_ == 0) idle_.notify_all();
}

bool HttpShared::AwaitIdle(std::chrono::nanoseconds patience) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, patience, [this] { return requests_ == 0; });
}

}  // namespace baton
