#include "server/grpc_decode_peer.h"

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "grpcpp/grpcpp.h"

namespace baton {
namespace {

constexpr std::chrono::seconds kPatience(30);

// A decode worker's control side that hears a heartbeat and does not answer.
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
  // The connection breaks, and nobody listens any more.
  void Die() {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }
  std::future<void> Heard() { return heard_.get_future(); }

  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext*, const kv::v1::HeartbeatRequest*,
                                      kv::v1::HeartbeatReply*) override {
    heard_.set_value();
    return new Unanswered;
  }

 private:
  class Unanswered final : public grpc::ServerUnaryReactor {
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }
  };

  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::promise<void> heard_;
};

std::future<absl::Status> Beat(const std::string& address, absl::Duration timeout) {
  auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  auto result = std::make_shared<std::promise<absl::Status>>();
  GrpcDecodePeer peer(channel, timeout);  // ends before its call does
  peer.SendHeartbeat({.writer = Incarnation(1), .active = {}},
                     [result](absl::StatusOr<HeartbeatReply> reply) { result->set_value(reply.status()); });
  return result->get_future();
}

absl::StatusCode CodeOf(std::future<absl::Status> result) {
  REQUIRE(result.wait_for(kPatience) == std::future_status::ready);
  return result.get().code();
}

TEST_CASE("a decode worker that is slow to answer is not one that is gone: it may have acted, and is asked again") {
  const Silent silent;
  CHECK(CodeOf(Beat(silent.address(), absl::Milliseconds(300))) == absl::StatusCode::kDeadlineExceeded);
}

TEST_CASE("a decode worker that closes in the middle of a call is gone") {
  Silent silent;
  std::future<absl::Status> result = Beat(silent.address(), absl::Minutes(5));
  REQUIRE(silent.Heard().wait_for(kPatience) == std::future_status::ready);
  silent.Die();
  CHECK(CodeOf(std::move(result)) == absl::StatusCode::kUnavailable);
}

TEST_CASE("a decode worker that nobody reaches is gone, long before the deadline") {
  std::string address;
  {
    const Silent silent;
    address = silent.address();
  }
  CHECK(CodeOf(Beat(address, absl::Minutes(5))) == absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace baton
