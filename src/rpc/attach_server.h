// One Attach stream, on the worker: commands in, events out, coalesced while the router is slower than the worker.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "grpcpp/grpcpp.h"
#include "grpcpp/support/server_callback.h"
#include "rpc/coalesce.h"

namespace baton {

// Found by overload are `Coalesce(Event& last, Event& next)`, true if `next` was merged into `last`, and
// `Recycle(Event& sent)`, true if `sent` was emptied to be filled again.
template <typename Command, typename Event>
class AttachServer final : public grpc::ServerBidiReactor<Command, Event> {
 public:
  struct Handlers {
    std::function<void(AttachServer*, Command&)> on_command;  // one at a time
    std::function<void(AttachServer*)> on_gone;               // once, last; the stream is deleted after it
  };
  AttachServer(grpc::CallbackServerContext* context, Handlers handlers)
      : context_(context), handlers_(std::move(handlers)) {}

  // After the handlers' owner has registered it.
  void Start() { this->StartRead(&command_); }

  // An empty event, if possible with the memory of one that was sent.
  Event NewEvent() {
    const std::lock_guard lock(mutex_);
    return std::exchange(spare_, std::nullopt).value_or(Event());
  }

  // In order. Dropped once the stream is broken.
  void Send(Event event) {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    // The first is being written and must not change. Merged ones stay below what gRPC takes as one message (4 MiB).
    const size_t bytes = event.ByteSizeLong();
    if (queue_.size() >= 2 && last_bytes_ + bytes <= kMaxMergedBytes && Coalesce(queue_.back(), event)) {
      ++coalesced_;
      last_bytes_ += bytes;
    } else {
      last_bytes_ = bytes;
      queue_.push_back(std::move(event));
      if (queue_.size() == 1) this->StartWrite(&queue_.front());
    }
    if (queue_.size() + coalesced_ > kMaxUnsent) context_->TryCancel();  // a router that does not read
  }

  // Ends the stream after what was sent before: a worker that shuts down has told all of its last requests.
  void Close(const grpc::Status& status) {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    closing_ = true;
    status_ = status;
    if (queue_.empty()) this->Finish(status_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Close(grpc::Status::OK);
    handlers_.on_command(this, command_);
    command_.Clear();
    this->StartRead(&command_);
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    if (Recycle(queue_.front())) spare_ = std::move(queue_.front());
    queue_.pop_front();
    if (queue_.size() <= 1) coalesced_ = 0;
    if (!ok) {
      closing_ = true;
      queue_.clear();
    }
    if (!queue_.empty()) {
      this->StartWrite(&queue_.front());
    } else if (closing_) {
      this->Finish(status_);
    }
  }

  void OnCancel() override { Close(grpc::Status::CANCELLED); }

  void OnDone() override {
    handlers_.on_gone(this);
    delete this;
  }

 private:
  static constexpr size_t kMaxUnsent = 100'000;  // events, merged ones counted
  static constexpr size_t kMaxMergedBytes = size_t{1} << 20;

  grpc::CallbackServerContext* context_;
  Handlers handlers_;
  Command command_;
  std::mutex mutex_;         // guards what follows
  std::deque<Event> queue_;  // the first is being written
  std::optional<Event> spare_;
  size_t last_bytes_ = 0;  // of the last in queue_, at most: merging only saves bytes
  size_t coalesced_ = 0;
  bool closing_ = false;
  grpc::Status status_;
};

}  // namespace baton
