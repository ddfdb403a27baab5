// The worker's end of one Attach stream. It receives commands and sends events. Merges events while
// the router reads more slowly than the worker sends.
#pragma once

#include <atomic>
#include <cstdint>
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

// The event type needs two functions, which are found by overload resolution (see rpc/coalesce.h):
// - `Coalesce(Event& last, Event& next)` returns true if it merged `next` into `last`.
// - `Recycle(Event& sent)` returns true if it emptied `sent` for reuse.
template <typename Command, typename Event>
class AttachServer final : public grpc::ServerBidiReactor<Command, Event> {
 public:
  struct Handlers {
    // Called for one command at a time.
    std::function<void(AttachServer*, Command&)> on_command;
    // Called exactly once, last. The stream is deleted afterwards.
    std::function<void(AttachServer*)> on_gone;
  };
  AttachServer(grpc::CallbackServerContext* context, Handlers handlers)
      : context_(context), handlers_(std::move(handlers)) {}

  // Starts reading commands. REQUIRES: the owner of the handlers has registered the stream.
  void Start() { this->StartRead(&command_); }

  // Returns an empty event. Reuses the memory of a sent event if there is one.
  Event NewEvent() {
    const std::lock_guard lock(mutex_);
    return std::exchange(recycled_, std::nullopt).value_or(Event());
  }

  // Sends events in the order of the calls. Drops the event if the stream is closing. Thread-safe.
  void Send(Event event) {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    // gRPC is writing the first event, so it must not change. Merged events stay below gRPC's
    // default limit of 4 MiB per message.
    const size_t bytes = event.ByteSizeLong();
    if (queue_.size() >= 2 && last_bytes_ + bytes <= kMaxMergedBytes && Coalesce(queue_.back(), event)) {
      ++coalesced_;
      last_bytes_ += bytes;
    } else {
      last_bytes_ = bytes;
      queue_.push_back(std::move(event));
      if (queue_.size() == 1) this->StartWrite(&queue_.front());
    }
    // This many unsent events mean that the router does not read.
    if (queue_.size() + coalesced_ > kMaxUnsent) context_->TryCancel();
  }

  // Number of commands that the handler has taken up. Thread-safe.
  int64_t commands() const { return commands_; }

  // Ends the stream with `status` after all events that were sent before. A worker that shuts down
  // has therefore reported the results of its last requests.
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
    ++commands_;
    command_.Clear();
    this->StartRead(&command_);
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    if (Recycle(queue_.front())) recycled_ = std::move(queue_.front());
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
  // Upper bound on unsent events. An event that was merged into another one counts too.
  static constexpr size_t kMaxUnsent = 100'000;
  static constexpr size_t kMaxMergedBytes = size_t{1} << 20;

  grpc::CallbackServerContext* context_;
  Handlers handlers_;
  Command command_;
  std::atomic<int64_t> commands_ = 0;
  std::mutex mutex_;  // guards the members below
  // gRPC is writing the first event.
  std::deque<Event> queue_;
  std::optional<Event> recycled_;
  // Upper bound on the bytes of the last event in queue_. Merging can only save bytes.
  size_t last_bytes_ = 0;
  size_t coalesced_ = 0;
  bool closing_ = false;
  grpc::Status status_;
};

}  // namespace baton
