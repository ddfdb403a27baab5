// How a prefill worker reaches one decode worker's control side. Real: gRPC. Tests: direct, simulated, faulty.
#pragma once

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "engine/handoff/messages.h"

namespace baton {

// Calls return at once; `done` comes later, once and within the call's deadline, from any thread. UNAVAILABLE: the peer
// could not be reached; DEADLINE_EXCEEDED: no answer in time, it may or may not have acted; FAILED_PRECONDITION: it
// refused, and the message says why (to Link: the two do not match; to Reserve and Heartbeat: this writer is not linked
// there, so the peer has restarted and must be linked again; to Commit: the reservation is gone).
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
