// The interface by which a prefill worker sends control messages to one decode worker. Production
// code implements it with gRPC. Tests implement it with direct calls and faults.
#pragma once

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "engine/handoff/messages.h"

namespace baton {

// Each call returns at once. `done` is called once, later, from any thread, and within the call's
// deadline. Its errors are:
// - UNAVAILABLE: the peer cannot be reached.
// - DEADLINE_EXCEEDED: no answer came in time. The peer may have acted on the message.
// - FAILED_PRECONDITION: the peer refused, for the reason in the message. To Link: the two workers
//   do not match. To Reserve and Heartbeat: this writer is not linked. The peer has then restarted,
//   and the writer must link again. To Commit: the reservation is gone.
class DecodePeer {
 public:
  template <typename T>
  using Done = absl::AnyInvocable<void(absl::StatusOr<T>)>;
  struct Ack {};

  virtual ~DecodePeer() = default;
  virtual void SendLink(const LinkRequest& request, Done<LinkReply> done) = 0;
  virtual void SendReserve(const ReserveRequest& request, Done<ReserveReply> done) = 0;
  virtual void SendCommit(const Commit& commit, Done<Ack> done) = 0;
  virtual void SendRelease(const Release& release, Done<Ack> done) = 0;
  virtual void SendHeartbeat(const Heartbeat& heartbeat, Done<HeartbeatReply> done) = 0;
};

}  // namespace baton
