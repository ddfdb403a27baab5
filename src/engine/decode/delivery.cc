#include "engine/decode/delivery.h"

#include <utility>

namespace baton {

DecodeDelivery::DecodeDelivery(DecodeListener& listener) : listener_(listener), thread_([this] { Run(); }) {}

DecodeDelivery::~DecodeDelivery() {
  Flush();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void DecodeDelivery::Deliver(DecodeEvents events) {
  if (events.empty()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !events_.has_value(); });
  events_ = std::move(events);
  changed_.notify_all();
}

void DecodeDelivery::Flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !events_.has_value(); });
}

void DecodeDelivery::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return events_.has_value() || stopping_; });
    if (!events_.has_value()) return;
    // No other thread accesses events_ until this thread resets it.
    lock.unlock();
    if (!events_->updates.empty()) listener_.OnUpdates(events_->updates);
    for (const RequestFailed& failed : events_->failures) listener_.OnFailed(failed);
    if (!events_->room.empty()) listener_.OnRoom(events_->room);
    lock.lock();
    events_.reset();
    changed_.notify_all();
  }
}

}  // namespace baton
