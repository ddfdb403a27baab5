// One attempt at an Attach stream, on the router: commands out, events in.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <utility>

#include "grpcpp/grpcpp.h"
#include "grpcpp/support/client_callback.h"

namespace baton {

// Callbacks come from gRPC's threads, one at a time; `done` comes once, last.
template <typename Command, typename Event>
class AttachClient final : public grpc::ClientBidiReactor<Command, Event> {
 public:
  AttachClient(std::function<void(const Event&)> on_event, std::function<void(const grpc::Status&)> on_done)
      : on_event_(std::move(on_event)), on_done_(std::move(on_done)) {}

  // `attach` binds the call: stub->async()->Attach(context, reactor).
  void Start(const std::function<void(grpc::ClientContext*, AttachClient*)>& attach) {
    attach(&context_, this);
    this->AddHold();  // Send writes from outside of reactions, until reading ends
    this->StartRead(&event_);
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
      on_event_(event_);
      event_.Clear();
      this->StartRead(&event_);
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
  std::function<void(const Event&)> on_event_;
  std::function<void(const grpc::Status&)> on_done_;
  grpc::ClientContext context_;
  Event event_;
  std::mutex mutex_;           // guards what follows
  std::deque<Command> queue_;  // the first is being written
  bool broken_ = false;
};

}  // namespace baton
