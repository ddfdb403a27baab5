// A router's Attach streams to one worker, one at a time. It attaches, passes events on, and
// attaches again with backoff after a loss.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/logging.h"
#include "base/status.h"
#include "base/strings.h"
#include "router/worker_state.h"
#include "rpc/attach_client.h"
#include "rpc/grpc_server.h"
#include "rpc/grpc_status.h"
#include "shell/outbox.h"

namespace baton {

// Service is worker::v1::PrefillWorker or DecodeWorker. Thread-safe.
template <typename Service, typename Command, typename Event>
class WorkerLink final : public Drainable {
 public:
  using CommandType = Command;
  // on_event and on_lost are called one at a time, from gRPC's threads, without a lock of this
  // class.
  // `link` is the worker's configured address.
  struct Handlers {
    // May move parts out of the event.
    std::function<void(const WorkerAddress& link, Event& event)> on_event;
    // Called once for each attempt, after its last event.
    std::function<void(const WorkerAddress& link)> on_lost;
    // NextTick has become earlier. It is called under this object's lock and must not call this
    // object.
    std::function<void()> on_closed;
  };

  // `role` is the list that has the address. The clock must outlive this object.
  WorkerLink(WorkerAddress address, WorkerRole role, const ChannelFactory& channels, const Clock& clock,
             Handlers handlers)
      : address_(std::move(address)),
        role_(role),
        stub_(Service::NewStub(channels(address_))),
        clock_(clock),
        handlers_(std::move(handlers)),
        outbox_([this](Posted& posted) { Send(posted); }) {}

  // Waits until the stream is closed.
  ~WorkerLink() override { Stop(); }

  // Starts the next attempt if it is due.
  void Tick() {
    std::shared_ptr<Stream> fresh;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_ || stream_ != nullptr || clock_.Now() < next_attempt_) return;
      ++attempts_;
      stream_ = fresh = std::make_shared<Stream>([this](Event& event) { OnEvent(event); },
                                                 [this](const grpc::Status& status) { OnDone(status); });
    }
    fresh->Start([this](grpc::ClientContext* context, Stream* stream) { stub_->async()->Attach(context, stream); });
  }
  // Returns the time at which Tick has work, or InfiniteFuture if there is none before the next
  // on_closed.
  absl::Time NextTick() const {
    const std::lock_guard lock(mutex_);
    return stopping_ || stream_ != nullptr ? absl::InfiniteFuture() : next_attempt_;
  }

  // Queues a command for the worker of the running attempt. Drain makes and sends commands in the
  // order of these calls. A command whose attempt has ended is dropped, so no later attempt sends
  // it.
  void Post(absl::AnyInvocable<Command()> make) {
    const std::lock_guard lock(mutex_);
    if (stream_ != nullptr) outbox_.Add({attempts_, std::move(make)});
  }
  void Drain() override { outbox_.Drain(); }

  // Closes the stream of a peer that broke the protocol or cannot serve here, and attaches again
  // after kRefusedBackoff. The handlers are called as after any loss.
  void Refuse(const absl::Status& why) {
    const std::lock_guard lock(mutex_);
    if (stream_ == nullptr) return;
    refused_ = true;
    LogOnce(spdlog::level::err, StrCat("refused: ", Message(why)));
    stream_->Cancel();
  }

  // Closes the stream and waits for its end. No event follows.
  void Stop() {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    if (stream_ != nullptr) stream_->Cancel();
    closed_.wait(lock, [this] { return stream_ == nullptr; });
  }

  // Returns the last reason why the worker was not attached, as logged. Empty if there is none yet.
  std::string problem() const {
    const std::lock_guard lock(mutex_);
    return last_logged_;
  }
  const WorkerAddress& address() const { return address_; }

 private:
  using Stream = AttachClient<Command, Event>;
  struct Posted {
    uint64_t attempt = 0;
    absl::AnyInvocable<Command()> make;
  };
  static constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
  static constexpr absl::Duration kMaxBackoff = absl::Seconds(2);
  static constexpr absl::Duration kRefusedBackoff = absl::Milliseconds(500);

  void Send(Posted& posted) {
    Command command = posted.make();  // without the lock, because a prompt may be long
    const std::lock_guard lock(mutex_);
    if (stream_ != nullptr && posted.attempt == attempts_) stream_->Send(std::move(command));
  }

  void OnEvent(Event& event) {
    {
      const std::lock_guard lock(mutex_);
      backoff_ = kFirstBackoff;
      attached_ = true;
    }
    handlers_.on_event(address_, event);
  }

  void OnDone(const grpc::Status& status) {
    handlers_.on_lost(address_);
    const std::lock_guard lock(mutex_);
    const bool refused = std::exchange(refused_, false);
    const bool attached = std::exchange(attached_, false);
    if (!stopping_ && !refused) {
      LogOnce(spdlog::level::warn, StrCat(attached ? "the connection ended: " : "cannot attach: ", Reason(status)));
    }
    next_attempt_ = clock_.Now() + (refused ? kRefusedBackoff : backoff_);
    backoff_ = std::min(backoff_ * 2, kMaxBackoff);
    ended_ = std::exchange(stream_, nullptr);
    handlers_.on_closed();
    closed_.notify_all();  // under the lock, because the waiting thread may destroy this object
  }

  // Returns the code and the reason of a failed attempt.
  std::string Reason(const grpc::Status& status) const {
    // gRPC has no text for a service that the worker lacks.
    if (status.error_code() != grpc::StatusCode::UNIMPLEMENTED) return FromGrpc(status).ToString();
    if (role_ == WorkerRole::kPrefill) {
      return "UNIMPLEMENTED: the worker serves no prefill, but --prefill-workers has its address; list decode workers "
             "under --decode-workers";
    }
    return "UNIMPLEMENTED: the worker serves no decode, but --decode-workers has its address; list prefill workers "
           "under --prefill-workers";
  }

  // Logs a text unless it equals the last one. REQUIRES: the caller holds the lock.
  void LogOnce(spdlog::level::level_enum level, std::string text) {
    if (text == last_logged_) return;
    last_logged_ = std::move(text);
    spdlog::log(level, "worker {}: {}", address_, last_logged_);
  }

  const WorkerAddress address_;
  const WorkerRole role_;
  const std::unique_ptr<typename Service::Stub> stub_;
  const Clock& clock_;
  const Handlers handlers_;
  Outbox<Posted> outbox_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable closed_;
  std::shared_ptr<Stream> stream_;
  uint64_t attempts_ = 0;  // attempts so far, including the running one
  // The last stream, which holds the channel. gRPC's thread on which a stream ends must not destroy
  // the last reference to the channel. That thread would wait for itself and free its queue twice.
  std::shared_ptr<Stream> ended_;
  bool stopping_ = false;
  absl::Time next_attempt_ = absl::InfinitePast();
  absl::Duration backoff_ = kFirstBackoff;
  bool refused_ = false;   // the running stream was refused
  bool attached_ = false;  // the running stream has had an event
  std::string last_logged_;
};

}  // namespace baton
