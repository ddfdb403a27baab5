// A router's connection to one worker: attaches, attaches again after a loss with backoff, passes events on.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/ids.h"
#include "base/logging.h"
#include "base/status.h"
#include "base/strings.h"
#include "rpc/attach_client.h"
#include "rpc/grpc_server.h"

namespace baton {

// Service is worker::v1::PrefillWorker or DecodeWorker. Callbacks come one at a time, from gRPC's threads, and not
// while a lock of this class is held. Tick must be called often: attempts start there.
template <typename Service, typename Command, typename Event>
class WorkerLink {
 public:
  struct Handlers {
    std::function<void(const WorkerAddress& link, const Event& event)> on_event;
    std::function<void(const WorkerAddress& link)> on_lost;  // after the last event of one attempt, always
  };

  WorkerLink(WorkerAddress address, const ChannelFactory& channels, Handlers handlers)
      : address_(std::move(address)), stub_(Service::NewStub(channels(address_))), handlers_(std::move(handlers)) {}

  // Waits until the stream is closed.
  ~WorkerLink() { Stop(); }

  void Tick(absl::Time now) {
    std::shared_ptr<Stream> fresh;
    {
      const std::lock_guard lock(mutex_);
      now_ = now;
      if (stopping_ || stream_ != nullptr || now < next_attempt_) return;
      stream_ = fresh = std::make_shared<Stream>([this](const Event& event) { OnEvent(event); },
                                                 [this](const grpc::Status& status) { OnDone(status); });
    }
    fresh->Start([this](grpc::ClientContext* context, Stream* stream) { stub_->async()->Attach(context, stream); });
  }

  // Dropped while there is no stream.
  void Send(Command command) {
    const std::lock_guard lock(mutex_);
    if (stream_ != nullptr) stream_->Send(std::move(command));
  }

  // The peer broke the protocol, or is not wanted as it is: its stream is closed, with all that follows from that, and
  // it is asked again after a while.
  void Refuse(const absl::Status& why) {
    const std::lock_guard lock(mutex_);
    if (stream_ == nullptr) return;
    refused_ = true;
    LogOnce(spdlog::level::err, StrCat("refused: ", Message(why)));
    stream_->Cancel();
  }

  // No event comes after it.
  void Stop() {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    if (stream_ != nullptr) stream_->Cancel();
    closed_.wait(lock, [this] { return stream_ == nullptr; });
  }

  const WorkerAddress& address() const { return address_; }

 private:
  using Stream = AttachClient<Command, Event>;
  static constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
  static constexpr absl::Duration kMaxBackoff = absl::Seconds(2);
  static constexpr absl::Duration kRefusedBackoff = absl::Milliseconds(500);

  void OnEvent(const Event& event) {
    {
      const std::lock_guard lock(mutex_);
      backoff_ = kFirstBackoff;
    }
    handlers_.on_event(address_, event);
  }

  void OnDone(const grpc::Status& status) {
    handlers_.on_lost(address_);
    const std::lock_guard lock(mutex_);
    const bool refused = std::exchange(refused_, false);
    if (!stopping_ && !refused) LogOnce(spdlog::level::warn, StrCat("not attached: ", status.error_message()));
    next_attempt_ = now_ + (refused ? kRefusedBackoff : backoff_);
    backoff_ = std::min(backoff_ * 2, kMaxBackoff);
    ended_ = std::exchange(stream_, nullptr);
    closed_.notify_all();  // under the lock: whoever waits may destroy this
  }

  // The same again and again is logged once. With the lock held.
  void LogOnce(spdlog::level::level_enum level, std::string text) {
    if (text == last_logged_) return;
    last_logged_ = std::move(text);
    spdlog::log(level, "worker {}: {}", address_, last_logged_);
  }

  const WorkerAddress address_;
  const std::unique_ptr<typename Service::Stub> stub_;
  const Handlers handlers_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable closed_;
  std::shared_ptr<Stream> stream_;
  // The last one. It holds the channel, and gRPC's own thread, on which it ends, must not be where the last channel is
  // destroyed: the thread would then wait for itself and free its queue twice.
  std::shared_ptr<Stream> ended_;
  bool stopping_ = false;
  absl::Time now_;
  absl::Time next_attempt_ = absl::InfinitePast();
  absl::Duration backoff_ = kFirstBackoff;
  bool refused_ = false;  // the stream
  std::string last_logged_;
};

}  // namespace baton
