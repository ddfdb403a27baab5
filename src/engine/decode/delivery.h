// The thread that passes the results of a decode step to a listener while the next step runs.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "engine/decode/engine.h"

namespace baton {

// Receives the events of requests, in the order of DecodeEvents. Calls come from one thread at a
// time, which holds no lock of the worker. The listener may call the worker, except Shutdown.
class DecodeListener {
 public:
  virtual ~DecodeListener() = default;
  // The updates of one step. A request has at most three: its start, a token and its cancellation.
  virtual void OnUpdates(std::span<TokenUpdate> updates) = 0;
  virtual void OnFailed(const RequestFailed& failed) = 0;
  // `requests` is DecodeEvents::room.
  virtual void OnRoom(const RoomReport& room) = 0;
};

// Owns the thread that calls the listener. With many streams, the listener takes longer than all
// other work of the host between two steps, and a GPU would wait for it.
class DecodeDelivery {
 public:
  // The listener must outlive it.
  explicit DecodeDelivery(DecodeListener& listener);
  ~DecodeDelivery();
  DecodeDelivery(const DecodeDelivery&) = delete;
  DecodeDelivery& operator=(const DecodeDelivery&) = delete;

  // Passes `events` to the listener's thread. First waits until the listener has received all
  // earlier events, so steps cannot outrun the listener. REQUIRES: the listener is not the caller.
  void Deliver(DecodeEvents events);
  // Waits until the listener has received all events. REQUIRES: the listener is not the caller.
  void Flush();

 private:
  void Run();

  DecodeListener& listener_;
  // A std::mutex, because ThreadSanitizer cannot see into Debian's build of absl::Mutex.
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_. Set until the listener has received them.
  std::optional<DecodeEvents> events_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;     // last, so that it starts when the other members are ready
};

}  // namespace baton
