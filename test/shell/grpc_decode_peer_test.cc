#include "shell/grpc_decode_peer.h"

#include <future>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "grpcpp/grpcpp.h"

namespace baton {
namespace {

// The control side of a decode worker. It answers releases, and it receives heartbeats without
// answering.
class Silent final : public kv::v1::KvTransfer::CallbackService {
 public:
  Silent() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~Silent() override { Die(); }
  const std::string& address() const { return address_; }
  // Breaks the connection and stops listening.
  void Die() {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }
  std::future<void> Received() { return received_.get_future(); }

  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext*, const kv::v1::HeartbeatRequest*,
                                      kv::v1::HeartbeatReply*) override {
    received_.set_value();
    return new Unanswered;
  }
  grpc::ServerUnaryReactor* Release(grpc::CallbackServerContext* context, const kv::v1::ReleaseRequest*,
                                    kv::v1::ReleaseReply*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  class Unanswered final : public grpc::ServerUnaryReactor {
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }
  };

  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::promise<void> received_;
};

// One heartbeat. The peer is destroyed as soon as the answer arrives.
class Beat {
 public:
  Beat(const std::string& address, absl::Duration timeout)
      : peer_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()), timeout) {
    peer_.SendHeartbeat({.writer = WriterId(1), .active = {}},
                        [this](absl::StatusOr<HeartbeatReply> reply) { result_.set_value(reply.status()); });
  }
  absl::StatusCode Code() { return result_.get_future().get().code(); }

 private:
  std::promise<absl::Status> result_;
  GrpcDecodePeer peer_;
};

TEST_CASE("GrpcDecodePeer returns the worker's answer") {
  const Silent silent;
  std::promise<absl::Status> result;
  GrpcDecodePeer peer(grpc::CreateChannel(silent.address(), grpc::InsecureChannelCredentials()), absl::Minutes(5));
  peer.SendRelease({}, [&](absl::StatusOr<DecodePeer::Ack> reply) { result.set_value(reply.status()); });
  CHECK(result.get_future().get().ok());
}

TEST_CASE("GrpcDecodePeer returns DEADLINE_EXCEEDED when a worker answers slowly") {
  const Silent silent;
  CHECK(Beat(silent.address(), absl::Milliseconds(300)).Code() == absl::StatusCode::kDeadlineExceeded);
}

TEST_CASE("GrpcDecodePeer returns UNAVAILABLE when a worker closes during a call") {
  Silent silent;
  Beat beat(silent.address(), absl::Minutes(5));
  silent.Received().wait();
  silent.Die();
  CHECK(beat.Code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("GrpcDecodePeer returns UNAVAILABLE before its deadline when no worker listens") {
  std::string address;
  {
    const Silent silent;
    address = silent.address();
  }
  CHECK(Beat(address, absl::Minutes(5)).Code() == absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace baton
