// A decode worker's control side, called by gRPC.
#pragma once

#include <memory>

#include "engine/handoff/decode_peer.h"
#include "kv_transfer.grpc.pb.h"

namespace baton {

class GrpcDecodePeer final : public DecodePeer {
 public:
  // Each call ends after `timeout` at the latest, with DEADLINE_EXCEEDED.
  GrpcDecodePeer(std::shared_ptr<grpc::Channel> channel, absl::Duration timeout);

  void SendLink(const LinkRequest& request, Done<LinkReply> done) override;
  void SendReserve(const ReserveRequest& request, Done<ReserveReply> done) override;
  void SendCommit(const Commit& commit, Done<Ack> done) override;
  void SendRelease(const Release& release, Done<Ack> done) override;
  void SendHeartbeat(const Heartbeat& heartbeat, Done<HeartbeatReply> done) override;

 private:
  std::unique_ptr<kv::v1::KvTransfer::Stub> stub_;
  absl::Duration timeout_;
};

}  // namespace baton
