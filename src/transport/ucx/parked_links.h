// Closed connections whose requests UCX has not ended in time.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/ucx/endpoint.h"
#include "transport/ucx/inbox.h"
#include "transport/ucx/progress.h"

namespace baton {

// The parts of a connection that UCX and the connection's thread may use until UCX has ended the
// last request.
struct UcxConnection {
  std::unique_ptr<UcxInbox> inbox;
  std::unique_ptr<UcxProgress> progress;
  std::unique_ptr<UcxEndpoint> endpoint;
  std::shared_future<void> closed;  // ready when UCX has ended the last request
};

// UCX may use the memory of a connection until its last request has ended. In rare cases UCX ends a
// request late or never (openucx/ucx#11154). The thread of a connection may also hang in a copy.
// Such connections are kept, each with its thread. Thread-safe.
class UcxParkedLinks {
 public:
  ~UcxParkedLinks() { Leak(); }

  // Leaks connections whose requests have not ended, because the process is about to end. Stops
  // their threads, and waits at most two seconds for that. Returns false if a thread hangs. It may
  // then still use the memory that the connection writes from.
  bool Leak();

  // Keeps the connection until it is closed. REQUIRES: UcxEndpoint::Close was called, or will be by
  // a task that is posted to the connection's thread.
  void Keep(UcxConnection connection);
  // Destroys the connections that have been closed meanwhile. Returns the number of the others.
  int64_t DestroyClosed();

  // Destroys a connection. REQUIRES: it is closed.
  static void Destroy(UcxConnection connection);

 private:
  std::mutex mutex_;
  std::vector<UcxConnection> kept_;  // guarded by mutex_
};

}  // namespace baton
