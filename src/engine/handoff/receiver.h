// The decode worker's side of the hand-off (design section 4): gives room to prefill workers, keeps it safe from late
// writers, and hands complete KV to the decoder. A state machine: messages and the time come in, answers go out.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "engine/handoff/admission.h"
#include "engine/handoff/messages.h"
#include "engine/handoff/refused_reservations.h"
#include "kv/block_pool.h"
#include "kv/block_table.h"
#include "kv/radix_tree.h"
#include "request/jobs.h"
#include "transport/write_guard.h"

namespace baton {

struct HandoffReceiverOptions {
  Digest module_digest{};  // of the prefill module whose KV this decoder takes
  KvLayout layout;
  std::string numerics_id;
  Incarnation incarnation;
  std::string transport_descriptor;
  // A reservation lapses this long after its last heartbeat, a commit that nobody claims this long after it.
  absl::Duration lease = absl::Seconds(10);
  // Blocks are used, and shared, only once their bytes were found to be those that their writer has read. Who sends no
  // digests is not linked.
  bool verify = false;
  // Must outlive it. With it, writers get a right to a reservation's missing blocks for as long as it is reserved. Who
  // cannot show one is not linked.
  WriteGuard* guard = nullptr;
  // Most KV tokens of one sequence: no max_new_tokens, however large, is counted beyond it.
  int64_t positions = std::numeric_limits<int64_t>::max();
};

// The KV [0, kv_tokens) of one prompt, complete. Full blocks are ready nodes of the tree, except where another request
// has promised the same node; a partial last block is this request's alone.
struct ClaimedKv {
  BlockTable table;            // [BlocksFor(kv_tokens)]
  std::vector<BlockKey> keys;  // of the full blocks
  int32_t kv_tokens = 0;
};

// The bytes of these blocks are to be digested (DigestsOf) → OnDigests, exactly once. They stay referenced until then.
struct BlockCheck {
  ReservationId id;
  std::vector<BlockId> blocks;
};
// What Start gives: KV, or that it is checked first, and the check's name.
using Claim = std::variant<ClaimedKv, ReservationId>;

// A reservation is
//   reserved     its missing blocks may be written by the writer; kept alive by heartbeats
//   committed    complete, waits to be claimed by Start; one for the cache alone is claimed here
//   checked      claimed, and its written blocks are compared with their digests; only where options.verify says so
//   quarantined  cancelled or lapsed while reserved: no other reservation gets its missing blocks until the writer has
//                released it or kQuarantineLeases leases have passed, since a writer fences itself
// and then forgotten. Without options.verify written blocks are shared through the tree from Commit on, with it once
// they were checked. Messages about a forgotten or unknown one are harmless. Nothing else ends a writer's right to its
// blocks: that another incarnation links from its address proves nothing, two workers may advertise the same.
// Not thread-safe. Pool and tree must outlive it; it alone quarantines blocks of the pool.
class HandoffReceiver {
 public:
  HandoffReceiver(HandoffReceiverOptions options, BlockPool& pool, RadixTree& tree, AdmissionPolicy admission);

  // From prefill workers. FAILED_PRECONDITION: version, digest or layout differ (both values are named), or one
  // incarnation links from two addresses.
  absl::StatusOr<LinkReply> OnLink(const LinkRequest& request, absl::Time now);
  // FAILED_PRECONDITION: the writer is not linked. INVALID_ARGUMENT: the request contradicts itself.
  absl::StatusOr<ReserveReply> OnReserve(ReserveRequest request, absl::Time now);
  // FAILED_PRECONDITION: the reservation is not there, has lapsed, or lacks blocks (then it is given up). OK again when
  // repeated. The same for a commit without the digests that were asked for, or without the reservation's right, which
  // changes nothing: it is not its writer's.
  absl::Status OnCommit(const Commit& commit, absl::Time now);
  void OnRelease(const Release& release, absl::Time now);
  // FAILED_PRECONDITION: the writer is not linked.
  absl::StatusOr<HeartbeatReply> OnHeartbeat(const Heartbeat& heartbeat, absl::Time now);

  // From the router. Claims a committed reservation, once. FAILED_PRECONDITION when anything is in doubt: another
  // incarnation, generation, request, prompt or block count; not committed; lapsed; claimed already.
  absl::StatusOr<Claim> Start(const DecodeJob& job, absl::Time now);
  // The oldest check that nobody has taken yet.
  std::optional<BlockCheck> NextCheck();
  // What a check of Start's gives; nothing if it was for the cache alone. DATA_LOSS: a block's bytes are not those that
  // were sent. Or the error that `digests` is. In both cases all of the blocks are given back, and none was shared.
  std::optional<absl::StatusOr<ClaimedKv>> OnDigests(ReservationId check,
                                                     const absl::StatusOr<std::vector<BlockDigest>>& digests,
                                                     absl::Time now);
  // Gives up all that is reserved or committed for the request and not claimed; nothing if nothing is.
  void Cancel(const RequestId& request, absl::Time now);

  // A sequence has ended. The receiver notices by itself what ends of reservations.
  void RoomMayHaveCome() { refused_.RoomMayHaveCome(); }
  // For how many of the reservations that were refused with Wait there is room now; for the routers. Those for the
  // cache alone do not count: no request waits for them.
  int64_t TakeRoom();

  // Lets leases and quarantines end. Call it at NextTick() or any time; every event does it first.
  void Tick(absl::Time now);
  absl::Time NextTick() const;  // infinite future if nothing waits for time

  // Reserved and committed (with those that are checked); not those for the cache alone, which never grow.
  struct Outstanding {
    int64_t reserved = 0;
    int64_t committed = 0;
    int64_t growth_blocks = 0;  // what all of them may come to need beyond what they hold, at their max_new_tokens
  };
  Outstanding outstanding() const;
  int64_t expired_leases() const { return expired_leases_; }  // reservations that lapsed, since the start
  int64_t failed_checks() const { return failed_checks_; }    // hand-offs whose blocks were others than those sent
  int64_t refused_writes() const { return options_.guard == nullptr ? 0 : options_.guard->refused(); }
  bool IsLinked(Incarnation writer) const { return links_.contains(writer); }
  void CheckInvariants() const;

 private:
  struct Reservation {
    Generation generation;
    ReserveRequest request;
    BlockTable table;  // [BlocksFor(request.kv_tokens)]
    size_t held = 0;   // blocks [0, held) of the table were here already, [held, size) are the writer's to write
    std::optional<WriteRight> right;  // of options.guard, in force until it is committed or given up
    bool committed = false;
    std::vector<BlockDigest> digests;  // of blocks [held, size), once committed; empty: they are not checked
    absl::Time lapses_at;
  };
  struct Quarantine {
    Generation generation;
    std::vector<BlockId> blocks;
    absl::Time ends_at;
  };
  struct Writer {
    WorkerAddress address;
    absl::Time heard_at;
  };
  using Reservations = std::map<ReservationId, Reservation>;
  using Quarantines = std::map<ReservationId, Quarantine>;

  void ForgetIdleLink();
  absl::Status CheckLink(const LinkRequest& request) const;
  absl::Status CheckReserve(const ReserveRequest& request) const;
  absl::Status CheckStart(const DecodeJob& job, const Reservation& reservation) const;
  Wait Refuse(const ReserveRequest& request, int64_t blocks_now);
  Reserved Grant(ReserveRequest request, BlockTable table, size_t held, absl::Time now);
  Reservations::iterator Find(const ReservationRef& ref);
  void EndWriting(const Reservation& reservation);
  // Ends a reservation. Blocks that the writer may still write are quarantined.
  Reservations::iterator GiveUp(Reservations::iterator it, absl::Time now);
  Quarantines::iterator EndQuarantine(Quarantines::iterator it);
  void ShareWrittenBlocks(Reservation& reservation);
  Claim Take(Reservations::iterator it);
  absl::Status Compare(const Reservation& reservation, const absl::StatusOr<std::vector<BlockDigest>>& digests) const;
  static ClaimedKv TakeKv(Reservation& reservation);

  HandoffReceiverOptions options_;
  BlockPool& pool_;
  RadixTree& tree_;
  AdmissionPolicy admission_;
  uint64_t made_ = 0;  // reservations so far
  int64_t expired_leases_ = 0;
  int64_t failed_checks_ = 0;
  uint64_t first_generation_;  // drawn from the incarnation
  absl::flat_hash_map<Incarnation, Writer> links_;
  Reservations reservations_;
  Quarantines quarantines_;
  Reservations checks_;                      // claimed; no message reaches them any more
  std::deque<ReservationId> to_be_checked_;  // of checks_, not taken yet
  RefusedReservations refused_;
};

}  // namespace baton
