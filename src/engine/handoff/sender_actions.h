// What the hand-off's sending side asks of its shell, and the ids by which the answers name it.
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

// Drawn by the sender; an event that answers an action quotes its id, so that late and doubled answers are recognised.
using LinkId = Id<struct LinkIdTag, uint64_t>;            // one attempt to link, and the connection it leads to
using HandoffId = Id<struct HandoffIdTag, uint64_t>;      // one request's hand-off
using HeartbeatId = Id<struct HeartbeatIdTag, uint64_t>;  // one heartbeat
using PushId = Id<struct PushIdTag, uint64_t>;            // one push
using DigestId = Id<struct DigestIdTag, uint64_t>;        // one DigestBlocks

// What the shell must do. "→" names the event that answers it, which must come exactly once.
struct SendLink {  // → OnLinkReply
  LinkId link;
  WorkerAddress to;
  LinkRequest request;
};
struct OpenConnection {  // Transport::Connect, best on another thread (it measures) → OnConnected
  LinkId link;
  WorkerAddress to;
  std::string transport_descriptor;
};
struct CloseConnection {  // destroy the transport's link; pushes in flight on it still report
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
struct PushBlocks {  // Link::Push → OnPushDone; UNAVAILABLE if the connection is not there any more
  PushId push;
  LinkId link;
  ReservationRef reservation;  // that it writes under, for logs and tests
  std::vector<BlockCopy> copies;
  std::optional<WriteRight> right{};  // where the peer guards its blocks
};
// The bytes of these blocks of our slab, for a decode worker that wants digests (DigestsOf) → OnDigests. They stay
// untouched until then.
struct DigestBlocks {
  DigestId id;
  ReservationRef reservation;  // for logs and tests
  std::vector<BlockId> blocks;
};
// There is room. `missing` are the block indices that the decode worker does not hold, ascending: the only ones pushed.
struct HandoffReserved {
  RequestId request_id;
  std::vector<int32_t> missing;
  uint64_t part = 0;
};
// Nothing is under way there any more: what is kept for reaching this peer may go. It may be met again.
struct ForgetPeer {
  WorkerAddress peer;
};
// A result, once for each Begin: no push of this request is in flight any more, none of its blocks is digested, they
// may be reused.
struct HandoffCommitted {
  RequestId request_id;
  ReservationRef reservation;
  Incarnation decode_incarnation;
  int32_t blocks = 0;  // in the prompt's block table
  int64_t bytes_pushed = 0;
  uint64_t part = 0;
};
// The other result. UNAVAILABLE may be retried after `retry_after`; RESOURCE_EXHAUSTED without it: the decode worker
// has no room, and reports to routers when it has; FAILED_PRECONDITION: the decode worker refuses to link;
// INVALID_ARGUMENT: the request can never fit; CANCELLED.
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
