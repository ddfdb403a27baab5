// The router's end of one Attach stream. It sends commands and receives events.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

#include "google/protobuf/arena.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/client_callback.h"

namespace baton {

// One Attach stream. A stream that ended is not restarted. gRPC's threads call the callbacks,
// one at a time. `on_done` is called exactly once, after all other callbacks. An event is valid
// until `on_event` returns, because all events share one arena.
template <typename Command, typename Event>
class AttachClient final : public grpc::ClientBidiReactor<Command, Event> {
 public:
  AttachClient(std::function<void(Event&)> on_event, std::function<void(const grpc::Status&)> on_done)
      : on_event_(std::move(on_event)), on_done_(std::move(on_done)) {}

  // Starts the call. `attach` must call stub->async()->Attach(context, reactor).
  void Start(const std::function<void(grpc::ClientContext*, AttachClient*)>& attach) {
    attach(&context_, this);
    // Send starts writes outside of reactions. The hold delays OnDone until reading ends.
    this->AddHold();
    this->StartRead(event_);
    this->StartCall();
  }

  // Sends commands in the order of the calls. Drops the command if the stream is broken, because
  // its requests fail then. Thread-safe.
  void Send(Command command) {
    const std::lock_guard lock(mutex_);
    if (broken_) return;
    queue_.push_back(std::move(command));
    if (queue_.size() == 1) this->StartWrite(&queue_.front());
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (ok) {
      on_event_(*event_);
      arena_.Reset();
      event_ = NewEvent();
      this->StartRead(event_);
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      broken_ = true;
    }
    // A worker that only half-closed the stream counts as lost.
    context_.TryCancel();
    this->RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    queue_.pop_front();
    if (ok && !broken_ && !queue_.empty()) this->StartWrite(&queue_.front());
  }

  void OnDone(const grpc::Status& status) override {
    // Another thread may destroy the stream before `done` returns.
    const auto done = std::move(on_done_);
    done(status);
  }

 private:
  Event* NewEvent() { return google::protobuf::Arena::CreateMessage<Event>(&arena_); }

  std::function<void(Event&)> on_event_;
  std::function<void(const grpc::Status&)> on_done_;
  grpc::ClientContext context_;
  // The initial memory of `arena_`, enough for the tokens of about 64 requests. A larger event
  // takes more memory until the next event.
  alignas(std::max_align_t) std::array<char, 16 << 10> first_block_;
  google::protobuf::Arena arena_{first_block_.data(), first_block_.size()};
  Event* event_ = NewEvent();
  std::mutex mutex_;  // guards the members below
  // Unsent commands. gRPC is writing the first one.
  std::deque<Command> queue_;
  bool broken_ = false;
};

}  // namespace baton
