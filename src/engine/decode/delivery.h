// Tells a listener of what steps made while the next one runs.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "engine/decode/engine.h"

namespace baton {

// Hears of requests, in the order of DecodeEvents, from one thread at a time and without any lock of the worker held.
// It may call the worker, except Shutdown.
class DecodeListener {
 public:
  virtual ~DecodeListener() = default;
  // All that one step made, at most two updates of a request.
  virtual void OnUpdates(std::span<TokenUpdate> updates) = 0;
  virtual void OnFailed(const RequestFailed& failed) = 0;
  // See DecodeEvents::room.
  virtual void OnRoom(int64_t requests) = 0;
};

// The thread that tells it: with many streams that takes longer than all else that a host does between two steps, and a
// GPU would wait for it.
class DecodeDelivery {
 public:
  // The listener must outlive it.
  explicit DecodeDelivery(DecodeListener& listener);
  ~DecodeDelivery();
  DecodeDelivery(const DecodeDelivery&) = delete;
  DecodeDelivery& operator=(const DecodeDelivery&) = delete;

  // Returns once the listener has heard all that came before: steps that are faster than it wait for it. Not from the
  // listener.
  void Deliver(DecodeEvents events);
  void Flush();  // returns once it has heard all. Not from the listener.

 private:
  void Run();

  DecodeListener& listener_;
  // The standard library's, because ThreadSanitizer does not see into Debian's build of absl::Mutex.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<DecodeEvents> events_;  // guarded by mutex_; until the listener has heard them
  bool stopping_ = false;               // guarded by mutex_
  std::thread thread_;                  // last: starts when the rest is ready
};

}  // namespace baton
