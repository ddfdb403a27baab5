// The actions of the sending side of the hand-off, and the ids that the answers to them carry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "engine/handoff/messages.h"
#include "transport/transport.h"

namespace baton {

// The sender makes these ids. An event that answers an action carries the id of the action, so that
// the sender recognises late and repeated answers.
using LinkId = Id<struct LinkIdTag, uint64_t>;            // one attempt to link, and its connection
using HandoffId = Id<struct HandoffIdTag, uint64_t>;      // one hand-off
using HeartbeatId = Id<struct HeartbeatIdTag, uint64_t>;  // one heartbeat
using PushId = Id<struct PushIdTag, uint64_t>;            // one push
using DigestId = Id<struct DigestIdTag, uint64_t>;        // one DigestBlocks action

// The shell must run each action. "→" names the event that answers the action. The event must come
// exactly once.
struct SendLink {  // → OnLinkReply
  LinkId link;
  WorkerAddress to;
  LinkRequest request;
};
// Runs Connector::Connect → OnConnected, with Link::EndsWithProcess. Connect measures and may
// block, so it needs a thread of its own.
struct OpenConnection {
  LinkId link;
  WorkerAddress to;
  std::string transport_descriptor;
};
// Destroys the transport's connection. Pushes in flight on it still have their OnPushDone.
struct CloseConnection {
  LinkId link;
};
struct SendReserve {  // → OnReserveReply
  HandoffId handoff;
  WorkerAddress to;
  ReserveRequest request;
};
struct SendCommit {  // → OnCommitReply
  HandoffId handoff;
  WorkerAddress to;
  Commit commit;
};
struct SendRelease {  // → OnReleaseReply
  WorkerAddress to;
  Release release;
};
struct SendHeartbeat {  // → OnHeartbeatReply
  HeartbeatId id;
  WorkerAddress to;
  Heartbeat heartbeat;
};
// Runs Link::Push, or Link::PushUnder if `write_key` is set → OnPushDone. The status is UNAVAILABLE
// if the connection is closed.
struct PushBlocks {
  PushId push;
  LinkId link;
  ReservationRef reservation;  // for logs and tests
  std::vector<BlockCopy> copies;
  std::optional<WriteKey> write_key{};  // set if the peer guards its blocks
};
// Computes DigestsOf these blocks of this worker's slab → OnDigests. For decode workers that want
// digests. The blocks must not change until the answer.
struct DigestBlocks {
  DigestId id;
  ReservationRef reservation;  // for logs and tests
  std::vector<BlockId> blocks;
};
// The decode worker has reserved room. `missing` are the indices of the blocks that it does not
// hold, ascending. Only these blocks are pushed.
struct HandoffReserved {
  RequestId request_id;
  std::vector<int32_t> missing;
  uint64_t part = 0;
};
// No message to this peer is in flight or will follow for now. The shell may drop its DecodePeer.
// The sender may use the peer again later.
struct ForgetPeer {
  WorkerAddress peer;
};
// A result. Each Begin has one result, HandoffCommitted or HandoffFailed. At that time no push and
// no digest of the hand-off is in flight, so its blocks may be reused.
struct HandoffCommitted {
  RequestId request_id;
  ReservationRef reservation;
  Incarnation decode_incarnation;
  int32_t blocks = 0;  // in the prompt's block table
  int64_t bytes_pushed = 0;
  uint64_t part = 0;
};
// The other result. Its status is one of these, or an error of a push or a digest:
// - UNAVAILABLE: the request may be retried after `retry_after`.
// - RESOURCE_EXHAUSTED: the decode worker has no room. It reports to routers when it has, so there
//   is no `retry_after`.
// - FAILED_PRECONDITION: the decode worker cannot be linked.
// - INVALID_ARGUMENT: the request can never fit.
// - INTERNAL: the decode worker's answer is malformed.
// - CANCELLED: Cancel was called.
struct HandoffFailed {
  RequestId request_id;
  absl::Status status;
  absl::Duration retry_after;
  uint64_t part = 0;
};

using SenderAction =
    std::variant<SendLink, OpenConnection, CloseConnection, SendReserve, SendCommit, SendRelease, SendHeartbeat,
                 PushBlocks, DigestBlocks, ForgetPeer, HandoffReserved, HandoffCommitted, HandoffFailed>;

}  // namespace baton
