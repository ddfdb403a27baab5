// One attempt at an Attach stream, on the router: commands out, events in.
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

// Callbacks come from gRPC's threads, one at a time; `done` comes once, last. An event is valid until `on_event`
// returns: all events have the same memory, one after the other.
template <typename Command, typename Event>
class AttachClient final : public grpc::ClientBidiReactor<Command, Event> {
 public:
  AttachClient(std::function<void(Event&)> on_event, std::function<void(const grpc::Status&)> on_done)
      : on_event_(std::move(on_event)), on_done_(std::move(on_done)) {}

  // `attach` binds the call: stub->async()->Attach(context, reactor).
  void Start(const std::function<void(grpc::ClientContext*, AttachClient*)>& attach) {
    attach(&context_, this);
    this->AddHold();  // Send writes from outside of reactions, until reading ends
    this->StartRead(event_);
    this->StartCall();
  }

  // In order. Dropped once the stream is broken: its requests are failed then.
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
    context_.TryCancel();  // a worker that only half-closed is lost all the same
    this->RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    queue_.pop_front();
    if (ok && !broken_ && !queue_.empty()) this->StartWrite(&queue_.front());
  }

  void OnDone(const grpc::Status& status) override {
    const auto done = std::move(on_done_);  // the stream may be destroyed by another thread before it returns
    done(status);
  }

 private:
  Event* NewEvent() { return google::protobuf::Arena::CreateMessage<Event>(&arena_); }

  std::function<void(Event&)> on_event_;
  std::function<void(const grpc::Status&)> on_done_;
  grpc::ClientContext context_;
  // Enough for the tokens of about 64 requests; what is larger takes more, until the next event.
  alignas(std::max_align_t) std::array<char, 16 << 10> first_block_;
  google::protobuf::Arena arena_{first_block_.data(), first_block_.size()};
  Event* event_ = NewEvent();
  std::mutex mutex_;           // guards what follows
  std::deque<Command> queue_;  // the first is being written
  bool broken_ = false;
};

}  // namespace baton
