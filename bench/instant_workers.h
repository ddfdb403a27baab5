// Workers for bench_router that compute nothing. A prompt is complete at once, and every request
// gets a token in each step. The id and the text of a token are the number of its step. The
// receiver uses the number to find the time at which the token was sent.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "inference.grpc.pb.h"
#include "rpc/attach_server.h"
#include "rpc/grpc_server.h"
#include "rpc/worker_convert.h"
#include "worker.grpc.pb.h"

namespace baton {

inline constexpr Incarnation kDecodeIncarnation{22};
inline constexpr int32_t kContext = 1 << 20;

inline WorkerInfo Info(WorkerRole role, const std::string& address, Incarnation incarnation) {
  WorkerInfo info;
  info.role = role;
  info.address = address;
  info.incarnation = incarnation;
  info.model = "bytes";
  info.layout = {.layers = 1, .kv_heads = 1, .head_dim = 1, .format = KvFormat::kBf16};
  info.blocks_total = 1 << 20;
  info.context = kContext;
  info.max_batch = 1024;
  return info;
}

// The times at which the tokens of steps were sent. A slot is reused long after its tokens have
// arrived.
class SendTimes {
 public:
  void Set(int32_t step) { times_[Slot(step)] = std::chrono::steady_clock::now().time_since_epoch().count(); }
  double MicrosecondsSince(int32_t step) const {
    return static_cast<double>(std::chrono::steady_clock::now().time_since_epoch().count() - times_[Slot(step)]) / 1e3;
  }

 private:
  static size_t Slot(int32_t step) { return static_cast<size_t>(step) % 65536; }
  std::array<std::atomic<int64_t>, 65536> times_{};
};

// A prefill worker that completes every prompt at once.
class InstantPrefill final
    : public worker::v1::PrefillWorker::WithCallbackMethod_Attach<worker::v1::PrefillWorker::Service> {
 public:
  using Stream = AttachServer<worker::v1::PrefillCommand, worker::v1::PrefillEvent>;
  WorkerInfo info;

  grpc::ServerBidiReactor<worker::v1::PrefillCommand, worker::v1::PrefillEvent>* Attach(
      grpc::CallbackServerContext* context) override {
    auto* stream = new Stream(context, {[](Stream* s, auto& command) { OnCommand(s, command); }, [](Stream*) {}});
    worker::v1::PrefillEvent hello;
    *hello.mutable_info() = ToProto(info);
    stream->Send(std::move(hello));
    stream->Start();
    return stream;
  }

 private:
  static void OnCommand(Stream* stream, const worker::v1::PrefillCommand& command) {
    if (!command.has_prefill()) return;
    PrefillDone done;
    done.request_id = command.prefill().request_id();
    done.decode_incarnation = kDecodeIncarnation;
    worker::v1::PrefillEvent event;
    *event.mutable_done() = ToProto(done);
    stream->Send(std::move(event));
  }
};

// A decode worker. A request with max_tokens 1 gets its token at once.
class InstantDecode final
    : public worker::v1::DecodeWorker::WithCallbackMethod_Attach<worker::v1::DecodeWorker::Service> {
 public:
  using Stream = AttachServer<worker::v1::DecodeCommand, worker::v1::DecodeEvent>;
  WorkerInfo info;

  grpc::ServerBidiReactor<worker::v1::DecodeCommand, worker::v1::DecodeEvent>* Attach(
      grpc::CallbackServerContext* context) override {
    auto* stream = new Stream(context, {[this](Stream*, auto& command) { OnCommand(command); },
                                        [this](Stream*) {
                                          const std::lock_guard lock(mutex_);
                                          stream_ = nullptr;
                                        }});
    const std::lock_guard lock(mutex_);
    stream_ = stream;
    worker::v1::DecodeEvent hello;
    *hello.mutable_info() = ToProto(info);
    stream->Send(std::move(hello));
    stream->Start();
    return stream;
  }
  void Step(int32_t step) {
    const std::lock_guard lock(mutex_);
    if (stream_ == nullptr || active_.empty()) return;
    worker::v1::DecodeEvent event;
    for (const RequestId& id : active_) {
      worker::v1::TokenUpdate& update = *event.mutable_updates()->add_updates();
      update.set_request_id(id);
      update.add_tokens(step);
      update.set_text(absl::StrCat("#", step));
    }
    stream_->Send(std::move(event));
  }

 private:
  void OnCommand(const worker::v1::DecodeCommand& command) {
    const std::lock_guard lock(mutex_);
    if (command.has_decode() && command.decode().spec().sampling().max_tokens() == 1) {
      return AnswerAtOnce(command.decode());
    }
    if (command.has_decode()) active_.push_back(command.decode().request_id());
    if (command.has_cancel()) std::erase(active_, command.cancel().request_id());
  }
  void AnswerAtOnce(const worker::v1::DecodeJob& job) {
    worker::v1::DecodeEvent event;
    worker::v1::TokenUpdate& update = *event.mutable_updates()->add_updates();
    update.set_request_id(job.request_id());
    update.add_tokens(0);
    update.set_text("#0");
    update.set_finish(v1::FINISH_REASON_LENGTH);
    stream_->Send(std::move(event));
  }

  std::mutex mutex_;
  Stream* stream_ = nullptr;
  std::vector<RequestId> active_;
};

// A service that sends the same tokens without a router, with one stream for each client.
class DirectService final : public v1::Inference::WithCallbackMethod_Generate<v1::Inference::Service> {
 public:
  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext*,
                                                           const v1::GenerateRequest*) override {
    auto* stream = new Stream(this);
    const std::lock_guard lock(mutex_);
    streams_.push_back(stream);
    return stream;
  }
  void Step(int32_t step) {
    const std::lock_guard lock(mutex_);
    for (Stream* stream : streams_) stream->Send(step);
  }

 private:
  class Stream final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
   public:
    explicit Stream(DirectService* service) : service_(service) {}
    void Send(int32_t step) {
      const std::lock_guard lock(mutex_);
      pending_.add_token_ids(step);
      pending_.mutable_text()->append(absl::StrCat("#", step));
      Continue();
    }
    void OnWriteDone(bool) override {
      const std::lock_guard lock(mutex_);
      writing_ = false;
      Continue();
    }
    void OnCancel() override {
      {
        const std::lock_guard lock(service_->mutex_);
        std::erase(service_->streams_, this);
      }
      Finish(grpc::Status::CANCELLED);
    }
    void OnDone() override { delete this; }

   private:
    void Continue() {
      if (writing_ || pending_.token_ids().empty()) return;
      writing_ = true;
      message_.Clear();
      message_.Swap(&pending_);
      StartWrite(&message_);
    }
    DirectService* service_;
    std::mutex mutex_;
    v1::GenerateResponse pending_, message_;
    bool writing_ = false;
  };
  std::mutex mutex_;
  std::vector<Stream*> streams_;
};

// The workers, the direct service and the thread that runs their steps.
class Workers {
 public:
  Workers(int step_ms, SendTimes& times) {
    prefill_server_ = Start(prefill_);
    decode_server_ = Start(decode_);
    direct_server_ = Start(direct_);
    prefill_.info = Info(WorkerRole::kPrefill, prefill_server_->address(), Incarnation(11));
    decode_.info = Info(WorkerRole::kDecode, decode_server_->address(), kDecodeIncarnation);
    stepper_ = std::thread([this, &times, period = std::chrono::milliseconds(step_ms)] {
      auto next = std::chrono::steady_clock::now();
      for (int32_t step = 0; !stopping_; ++step) {
        std::this_thread::sleep_until(next += period);
        if (paused_) continue;
        times.Set(step);
        decode_.Step(step);
        direct_.Step(step);
      }
    });
  }
  ~Workers() {
    stopping_ = true;
    stepper_.join();
  }
  // Workers send no tokens while they are paused.
  void Pause(bool paused) { paused_ = paused; }
  const std::string& prefill() const { return prefill_server_->address(); }
  const std::string& decode() const { return decode_server_->address(); }
  const std::string& direct() const { return direct_server_->address(); }

 private:
  static std::unique_ptr<GrpcServer> Start(grpc::Service& service) {
    auto server = GrpcServer::Start("127.0.0.1:0", GrpcServer::Audience::kWorkers, {&service});
    BATON_CHECK(server.ok(), server.status().ToString());
    return *std::move(server);
  }
  InstantPrefill prefill_;
  InstantDecode decode_;
  DirectService direct_;
  std::unique_ptr<GrpcServer> prefill_server_, decode_server_, direct_server_;
  std::atomic<bool> stopping_ = false, paused_ = false;
  std::thread stepper_;
};

}  // namespace baton
