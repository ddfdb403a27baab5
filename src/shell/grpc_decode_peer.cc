#include "shell/grpc_decode_peer.h"

#include <utility>

#include "rpc/grpc_deadline.h"
#include "rpc/grpc_status.h"
#include "rpc/kv_convert.h"

namespace baton {
namespace {

using Async = class kv::v1::KvTransfer::Stub::async;  // `class`, because a method has the same name
using Ack = DecodePeer::Ack;

// The messages of one call. It stays alive until gRPC has called back.
template <typename Request, typename Reply>
struct Call {
  grpc::ClientContext context;
  Request request;
  Reply reply;
};

// Converts the status of a call. CANCELLED becomes UNAVAILABLE, because the end of the
// peer cancelled the call. DEADLINE_EXCEEDED stays, because a slow peer is not gone. The sender
// repeats such a call until the lease ends, and pushes nothing under the reservation afterwards.
absl::Status Classify(const grpc::Status& status) {
  const absl::Status result = FromGrpc(status);
  return absl::IsCancelled(result) ? absl::UnavailableError(result.message()) : result;
}

template <typename Request, typename Reply, typename Convert, typename Result>
void Start(Async* stub,
           void (Async::*method)(grpc::ClientContext*, const Request*, Reply*, std::function<void(grpc::Status)>),
           absl::Duration timeout, Request request, Convert convert, DecodePeer::Done<Result> done) {
  auto call = std::make_shared<Call<Request, Reply>>();
  call->request = std::move(request);
  call->context.set_deadline(DeadlineAfter(timeout));
  call->context.set_wait_for_ready(false);
  // std::function must be copyable, although `done` is called only once.
  auto shared_done = std::make_shared<DecodePeer::Done<Result>>(std::move(done));
  (stub->*method)(&call->context, &call->request, &call->reply,
                  [call, convert, shared_done](grpc::Status status) mutable {
                    auto result = status.ok() ? absl::StatusOr<Result>(convert(call->reply)) : Classify(status);
                    // The call holds the channel. gRPC's own thread must not destroy the last
                    // reference to the channel, and `done` may release the others. The call is
                    // therefore destroyed before `done`.
                    call.reset();
                    (*shared_done)(std::move(result));
                  });
}

template <typename Reply>
absl::StatusOr<Ack> ToAck(const Reply&) {
  return Ack{};
}

}  // namespace

GrpcDecodePeer::GrpcDecodePeer(std::shared_ptr<grpc::Channel> channel, absl::Duration timeout)
    : stub_(kv::v1::KvTransfer::NewStub(channel)), timeout_(timeout) {}

void GrpcDecodePeer::SendLink(const LinkRequest& request, Done<LinkReply> done) {
  Start(
      stub_->async(), &Async::Link, timeout_, ToProto(request),
      [](const kv::v1::LinkReply& reply) { return FromProto(reply); }, std::move(done));
}

void GrpcDecodePeer::SendReserve(const ReserveRequest& request, Done<ReserveReply> done) {
  Start(
      stub_->async(), &Async::Reserve, timeout_, ToProto(request),
      [](const kv::v1::ReserveReply& reply) { return FromProto(reply); }, std::move(done));
}

void GrpcDecodePeer::SendCommit(const Commit& commit, Done<Ack> done) {
  Start(stub_->async(), &Async::Commit, timeout_, ToProto(commit), &ToAck<kv::v1::CommitReply>, std::move(done));
}

void GrpcDecodePeer::SendRelease(const Release& release, Done<Ack> done) {
  Start(stub_->async(), &Async::Release, timeout_, ToProto(release), &ToAck<kv::v1::ReleaseReply>, std::move(done));
}

void GrpcDecodePeer::SendHeartbeat(const Heartbeat& heartbeat, Done<HeartbeatReply> done) {
  Start(
      stub_->async(), &Async::Heartbeat, timeout_, ToProto(heartbeat),
      [](const kv::v1::HeartbeatReply& reply) -> absl::StatusOr<HeartbeatReply> { return FromProto(reply); },
      std::move(done));
}

}  // namespace baton
