#include "transport/ucx/parked_links.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/logging.h"

namespace baton {
namespace {

bool IsClosed(const UcxConnection& connection) {
  return connection.closed.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

void UcxParkedLinks::Destroy(UcxConnection connection) {
  BATON_CHECK(IsClosed(connection), "destroyed a connection that UCX still uses");
  // The progress thread may still be inside a method of the endpoint, so that thread destroys it.
  connection.progress->Call([&] {
    connection.endpoint.reset();
    return true;
  });
  connection.progress.reset();
  connection.inbox.reset();  // the thread used it
}

void UcxParkedLinks::Keep(UcxConnection connection) {
  {
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(connection));
  }
  spdlog::warn("UCX has not ended the requests of a closed connection: {} such connections are kept", DestroyClosed());
}

int64_t UcxParkedLinks::DestroyClosed() {
  std::vector<UcxConnection> closed;
  int64_t kept = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto first = std::stable_partition(kept_.begin(), kept_.end(),
                                             [](const UcxConnection& connection) { return !IsClosed(connection); });
    closed.assign(std::move_iterator(first), std::move_iterator(kept_.end()));
    kept_.erase(first, kept_.end());
    kept = std::ssize(kept_);
  }
  for (UcxConnection& connection : closed) Destroy(std::move(connection));
  return kept;
}

bool UcxParkedLinks::Leak() {
  if (DestroyClosed() == 0) return true;
  const auto until = std::chrono::steady_clock::now() + kStopWithin;
  bool stopped = true;
  for (UcxConnection& connection : kept_) {
    stopped &= connection.progress->StopBy(until);
    static_cast<void>(connection.endpoint.release());
    static_cast<void>(connection.progress.release());
    static_cast<void>(connection.inbox.release());
  }
  kept_.clear();
  return stopped;
}

}  // namespace baton
