// Fake workers that a test controls, with real sockets and the real protocol.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "catch.h"
#include "rpc/attach_server.h"
#include "rpc/grpc_server.h"
#include "rpc/worker_convert.h"
#include "worker.grpc.pb.h"

namespace baton {

inline WorkerInfo FakeInfo(WorkerRole role, const std::string& address, uint64_t incarnation) {
  WorkerInfo info;
  info.role = role;
  info.address = address;
  info.incarnation = Incarnation(incarnation);
  info.model = "bytes";
  info.layout = {.layers = 1, .kv_heads = 1, .head_dim = 1, .format = KvFormat::kBf16};
  info.blocks_total = 100;
  info.context = 64;
  info.max_batch = 8;
  return info;
}

// Visits the request ids of a message.
template <typename Visit>
void EachId(worker::v1::PrefillCommand& command, Visit visit) {
  if (command.has_prefill()) visit(*command.mutable_prefill()->mutable_request_id());
  if (command.has_append()) visit(*command.mutable_append()->mutable_request_id());
  if (command.has_cancel()) visit(*command.mutable_cancel()->mutable_request_id());
}
template <typename Visit>
void EachId(worker::v1::DecodeCommand& command, Visit visit) {
  if (command.has_decode()) visit(*command.mutable_decode()->mutable_request_id());
  if (!command.keep_room().request_id().empty()) visit(*command.mutable_keep_room()->mutable_request_id());
  if (command.has_cancel()) visit(*command.mutable_cancel()->mutable_request_id());
}
template <typename Visit>
void EachId(worker::v1::PrefillEvent& event, Visit visit) {
  if (event.has_started()) visit(*event.mutable_started()->mutable_request_id());
  if (event.has_done()) visit(*event.mutable_done()->mutable_request_id());
  if (event.has_failed()) visit(*event.mutable_failed()->mutable_request_id());
}
template <typename Visit>
void EachId(worker::v1::DecodeEvent& event, Visit visit) {
  if (event.has_failed()) visit(*event.mutable_failed()->mutable_request_id());
  if (event.has_room()) visit(*event.mutable_room()->mutable_kept_request_id());
  if (!event.has_updates()) return;
  for (auto& update : *event.mutable_updates()->mutable_updates()) visit(*update.mutable_request_id());
}

// A fake worker. Tests name requests as clients do, by the id without the router's suffix.
template <typename Base, typename Command, typename Event>
class FakeWorker final : public Base {
 public:
  using Stream = AttachServer<Command, Event>;

  // `edit` changes the worker's introduction.
  FakeWorker(
      WorkerRole role, uint64_t incarnation, const std::string& listen = "127.0.0.1:0",
      std::function<void(worker::v1::WorkerInfo&)> edit = [](worker::v1::WorkerInfo&) {})
      : edit_(std::move(edit)) {
    auto server = GrpcServer::Start(listen, GrpcServer::Audience::kWorkers, {this});
    REQUIRE(server.ok());
    server_ = *std::move(server);
    const std::lock_guard lock(mutex_);
    info_ = FakeInfo(role, server_->address(), incarnation);
  }
  ~FakeWorker() override { Die(); }

  const std::string& address() const { return server_->address(); }

  grpc::ServerBidiReactor<Command, Event>* Attach(grpc::CallbackServerContext* context) override {
    auto* stream = new Stream(
        context, {[this](Stream*, Command& command) { OnCommand(command); }, [this](Stream* gone) { OnGone(gone); }});
    const std::lock_guard lock(mutex_);
    stream_ = stream;
    if (info_) {
      Event hello;
      *hello.mutable_info() = ToProto(*info_);
      edit_(*hello.mutable_info());
      stream->Send(hello);
    }
    stream->Start();
    return stream;
  }

  // Waits for the next command, in order of arrival.
  Command Next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !commands_.empty(); });
    Command command = std::move(commands_.front());
    commands_.pop_front();
    return command;
  }

  bool HasNext() {
    const std::lock_guard lock(mutex_);
    return !commands_.empty();
  }

  void Send(Event event) {
    const std::lock_guard lock(mutex_);
    REQUIRE(stream_ != nullptr);
    EachId(event, [&](RequestId& id) {
      if (const auto found = full_ids_.find(id); found != full_ids_.end()) id = found->second;
    });
    stream_->Send(std::move(event));
  }

  // Returns the router's id of the latest request with this id.
  RequestId FullId(const RequestId& id) {
    const std::lock_guard lock(mutex_);
    return full_ids_.at(id);
  }

  // Breaks the worker's streams and stops listening.
  void Die() { server_->Stop(absl::ZeroDuration()); }

 private:
  const std::function<void(worker::v1::WorkerInfo&)> edit_;

  void OnCommand(const Command& command) {
    const std::lock_guard lock(mutex_);
    commands_.push_back(command);
    EachId(commands_.back(), [&](RequestId& id) {
      const RequestId full = id;
      id.resize(id.find('#'));
      full_ids_[id] = full;
    });
    changed_.notify_all();
  }
  void OnGone(Stream* gone) {
    const std::lock_guard lock(mutex_);
    if (stream_ == gone) stream_ = nullptr;
  }

  std::mutex mutex_;  // guards the following members
  std::condition_variable changed_;
  std::optional<WorkerInfo> info_;
  Stream* stream_ = nullptr;
  std::deque<Command> commands_;
  std::map<RequestId, RequestId> full_ids_;
  std::unique_ptr<GrpcServer> server_;
};

using FakePrefill = FakeWorker<worker::v1::PrefillWorker::WithCallbackMethod_Attach<worker::v1::PrefillWorker::Service>,
                               worker::v1::PrefillCommand, worker::v1::PrefillEvent>;
using FakeDecode = FakeWorker<worker::v1::DecodeWorker::WithCallbackMethod_Attach<worker::v1::DecodeWorker::Service>,
                              worker::v1::DecodeCommand, worker::v1::DecodeEvent>;

inline worker::v1::PrefillEvent StartedEvent(const RequestId& id) {
  worker::v1::PrefillEvent event;
  event.mutable_started()->set_request_id(id);
  return event;
}

inline worker::v1::PrefillEvent DoneEvent(const RequestId& id, Incarnation decode) {
  PrefillDone done;
  done.request_id = id;
  done.reservation = {ReservationId(5), Generation(6)};
  done.decode_incarnation = decode;
  done.blocks = 2;
  done.cached_tokens = 2;
  done.shared_tokens = 1;
  done.computed_tokens = 1;
  worker::v1::PrefillEvent event;
  *event.mutable_done() = ToProto(done);
  return event;
}

inline worker::v1::DecodeEvent TokensEvent(const RequestId& id, const std::string& text,
                                           std::optional<FinishReason> finish) {
  TokenUpdate update;
  update.request_id = id;
  for (const char c : text) update.tokens.push_back(static_cast<unsigned char>(c));
  update.text = text;
  update.finish = finish;
  worker::v1::DecodeEvent event;
  *event.mutable_updates()->add_updates() = ToProto(update);
  return event;
}

template <typename Event>
Event FailedEvent(const RequestId& id, const absl::Status& status) {
  Event event;
  *event.mutable_failed() = ToProto(RequestFailed{id, status, absl::ZeroDuration()});
  return event;
}

}  // namespace baton
