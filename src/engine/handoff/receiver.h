// The decode worker's side of the hand-off (docs/design/overview.md, section 4). A state machine:
// messages and the time come in, and answers go out.
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
#include "engine/handoff/kept_room.h"
#include "engine/handoff/messages.h"
#include "engine/handoff/quarantine.h"
#include "engine/handoff/refused_reservations.h"
#include "kv/block_pool.h"
#include "kv/block_table.h"
#include "kv/radix_tree.h"
#include "request/answers.h"
#include "request/jobs.h"
#include "transport/write_guard.h"

namespace baton {

struct HandoffReceiverOptions {
  Digest module_digest{};  // of the prefill module that makes the KV for this decode module
  KvLayout layout;
  std::string numerics_id;
  Incarnation incarnation;
  std::string transport_descriptor;
  // A reservation lapses this long after its last heartbeat. A committed reservation lapses this
  // long after its commit, unless a Start claims it.
  absl::Duration lease = absl::Seconds(10);
  // Compares written blocks with the digests of their writer before they are used or shared.
  // Refuses to link to prefill workers that send no digests.
  bool verify = false;
  // If set, a writer gets a write key for the missing blocks of a reservation, valid until the
  // commit. The receiver then refuses to link to prefill workers that do not support write keys.
  // Must outlive the receiver.
  WriteGuard* guard = nullptr;
  // Upper bound on KV tokens of one sequence. Growth beyond it does not count.
  int64_t positions = std::numeric_limits<int64_t>::max();
};

// Returns the id of the n-th link that a decode worker accepts. A restarted worker has another
// incarnation, so with a high probability it never uses an id of its predecessor.
WriterId NthWriter(Incarnation decode, uint64_t n);

// The complete KV of tokens [0, kv_tokens) of one prompt. Full blocks are ready nodes of the tree,
// unless another request has promised the same node. Only this request has the partial last block.
struct ClaimedKv {
  BlockTable table;            // [BlocksFor(kv_tokens)]
  std::vector<BlockKey> keys;  // of the full blocks
  int32_t kv_tokens = 0;
};

// A request to compute DigestsOf these blocks → OnDigests, exactly once. The blocks stay referenced
// until the answer.
struct BlockCheck {
  ReservationId id;
  std::vector<BlockId> blocks;
};
// The result of Start: the KV, or the id of the check (BlockCheck::id) that comes before it.
using Claim = std::variant<ClaimedKv, ReservationId>;

// Reserves blocks for prefill workers, protects the blocks from late writes, and passes complete KV
// to the decode engine. A reservation has one of these states until it is forgotten:
//
//   reserved     the writer may write the missing blocks; heartbeats renew the lease
//   committed    complete; a Start claims it. The commit claims a cache-only reservation.
//   checked      claimed; its written blocks are compared with their digests. Only if
//                HandoffReceiverOptions::verify is set.
//   quarantined  cancelled or lapsed while reserved. No other reservation gets the missing blocks
//                until the writer has released them, kQuarantineLeases leases have passed, or the
//                writer's process has ended (OnProcessEnd). Guarded blocks become free at once
//                instead, because no write can follow their revoked key.
//
// Written blocks are shared through the tree from the commit on. If `verify` is set, they are
// shared after the check. Messages about unknown reservations have no effect.
//
// A new link from a writer's address does not end the quarantine, because two workers may advertise
// the same address. docs/design/handoff_leases.md gives the reasons.
//
// Not thread-safe. The pool and the tree must outlive it. No other object may quarantine blocks of
// the pool.
class HandoffReceiver {
 public:
  HandoffReceiver(HandoffReceiverOptions options, BlockPool& pool, RadixTree& tree, AdmissionPolicy admission);

  // The next five methods take the messages of prefill workers.

  // Returns FAILED_PRECONDITION if the version, digest or layout differs, and names both values.
  // Returns it also if the prefill worker lacks digests or write keys that the options demand.
  // Each link gets an id of its own. A link therefore has no effect on other links, even if both
  // name one incarnation.
  absl::StatusOr<LinkReply> OnLink(const LinkRequest& request, absl::Time now);
  // Returns FAILED_PRECONDITION if the writer is not linked, and INVALID_ARGUMENT if the fields of
  // the request contradict each other.
  absl::StatusOr<ReserveReply> OnReserve(ReserveRequest request, absl::Time now);
  // Returns FAILED_PRECONDITION in these cases:
  // - The reservation is unknown, has lapsed or was claimed. A commit claims a cache-only
  //   reservation.
  // - The commit lacks blocks or digests. The reservation is then given up.
  // - The commit lacks the reservation's write key. Nothing changes, because the commit is not the
  //   writer's.
  // - The reservation was committed with other digests before. It is then given up.
  //
  // Returns OK for a repeated commit while the reservation waits for Start.
  absl::Status OnCommit(const Commit& commit, absl::Time now);
  void OnRelease(const Release& release, absl::Time now);
  // Returns FAILED_PRECONDITION if the writer is not linked.
  absl::StatusOr<HeartbeatReply> OnHeartbeat(const Heartbeat& heartbeat, absl::Time now);

  // The process that is named in a LinkRequest has ended. Ends its uncommitted reservations and its
  // quarantines whose ReserveRequest has ends_with_process. Their blocks become free at once.
  // Forgets the links of the process. Returns the number of freed blocks. REQUIRES: the operating
  // system has reported the end.
  int64_t OnProcessEnd(const std::string& process, absl::Time now);

  // Takes blocks for KV that the worker computes itself, under the policy for reservations. Reads
  // the request's name and sizes. The blocks are the caller's and have no reservation. Errors:
  // - RESOURCE_EXHAUSTED: there is no room now. TakeRoom reports it, as after Wait.
  // - INVALID_ARGUMENT: there can never be room.
  absl::StatusOr<BlockTable> TakeBlocks(const ReserveRequest& request, absl::Time now);

  // Claims a committed reservation for a job of the router. Returns FAILED_PRECONDITION if the job
  // names another incarnation, generation, request, prompt or block count. Also if the reservation
  // is not committed, has lapsed or was claimed before. Start does not compare the blocks' bytes.
  // If HandoffReceiverOptions::verify is set, the check that follows does.
  absl::StatusOr<Claim> Start(const DecodeJob& job, absl::Time now);
  // Returns the oldest check that was not returned before, or nullopt.
  std::optional<BlockCheck> NextCheck();
  // Ends a check. Returns the KV for the Start that began it, or nullopt if the reservation is
  // cache-only. Returns DATA_LOSS if the bytes of a block are not those that were sent, or the
  // error of `digests`. After an error all written blocks are released, and none was shared.
  std::optional<absl::StatusOr<ClaimedKv>> OnDigests(ReservationId check,
                                                     const absl::StatusOr<std::vector<BlockDigest>>& digests,
                                                     absl::Time now);
  // Gives up all reservations of the request that are not claimed.
  void Cancel(const RequestId& request, absl::Time now);

  // Records that a sequence has ended, so refused reservations may fit now. The receiver records it
  // itself when a reservation is granted or ends, or when a quarantine ends.
  void RoomMayHaveCome() { refused_.RoomMayHaveCome(); }
  // Returns how many reservations that were refused with Wait would fit now, for a report to the
  // routers, and forgets them (RefusedReservations). Cache-only reservations do not count, because
  // no request waits for them. Also names the request for which room was kept, once it fits.
  RoomReport TakeRoom();
  // Keeps room for a request of this router (KeptRoom), or for none if the request has no name or
  // can never fit.
  void Keep(RouterStream router, KeepRoom request, absl::Time now);
  bool keeps_room() const { return kept_.Keeps(UsableBlocks()); }

  // Ends leases and quarantines that are due. May be called at any time, and must be called at
  // NextTick(). Every event calls it first.
  void Tick(absl::Time now);
  absl::Time NextTick() const;  // InfiniteFuture if nothing waits for time

  // Counts of reservations, excluding cache-only ones, which never grow.
  struct Outstanding {
    int64_t reserved = 0;
    int64_t committed = 0;  // including those that are being checked
    // Blocks that all of them are expected to need beyond their blocks.
    int64_t growth_blocks = 0;
  };
  Outstanding outstanding() const;
  // Counts since the start: blocks that OnProcessEnd has freed, reservations that lapsed, hand-offs
  // whose blocks were not the bytes that were sent, and writes that the guard refused.
  int64_t freed_by_process_end() const { return freed_by_process_end_; }
  int64_t expired_leases() const { return expired_leases_; }
  int64_t failed_checks() const { return failed_checks_; }
  int64_t refused_writes() const { return options_.guard == nullptr ? 0 : options_.guard->refused(); }
  bool IsLinked(WriterId writer) const { return links_.contains(writer); }
  void CheckInvariants() const;

 private:
  struct Reservation {
    Generation generation;
    ReserveRequest request;
    BlockTable table;  // [BlocksFor(request.kv_tokens)]
    // Blocks [0, held) of the table were found in the tree. The writer writes blocks [held, size).
    size_t held = 0;
    // Valid until the commit, or until the reservation is given up.
    std::optional<WriteKey> write_key;
    bool committed = false;
    // The digests of blocks [held, size), from the commit. Empty if the blocks are not checked.
    std::vector<BlockDigest> digests;
    // The process that may write. Empty if writes may arrive after its end.
    std::string process;
    absl::Time lapses_at;
  };
  struct Writer {
    std::string process;  // LinkRequest::process
    absl::Time last_message;
  };
  using Reservations = std::map<ReservationId, Reservation>;

  void ForgetIdleLink();
  absl::Status CheckLink(const LinkRequest& request) const;
  absl::Status CheckReserve(const ReserveRequest& request) const;
  absl::Status CheckStart(const DecodeJob& job, const Reservation& reservation) const;
  // Blocks for a prompt. The first `held` blocks were found in the tree.
  struct FoundBlocks {
    BlockTable table;
    size_t held = 0;
  };
  std::variant<FoundBlocks, Wait, NeverFits> FindBlocks(const ReserveRequest& request);
  Wait Refuse(const ReserveRequest& request, int64_t blocks_now);
  // Returns the policy's answer for a reservation that leaves kept room free.
  Admission Consider(const ReserveRequest& request, int64_t blocks_now);
  // Returns the number of the pool's blocks that are not in quarantine.
  int64_t UsableBlocks() const { return pool_.counts().total - pool_.counts().quarantined; }
  Reserved Grant(ReserveRequest request, BlockTable table, size_t held, absl::Time now);
  Reservations::iterator Find(const ReservationRef& ref);
  void RevokeRight(const Reservation& reservation);
  // Ends a reservation. Quarantines the blocks that the writer may still write.
  Reservations::iterator GiveUp(Reservations::iterator it, absl::Time now);
  // Records that a quarantine of `freed` blocks has ended.
  void Freed(int64_t freed);
  void ShareWrittenBlocks(Reservation& reservation);
  Claim Take(Reservations::iterator it);
  absl::Status Compare(const Reservation& reservation, const absl::StatusOr<std::vector<BlockDigest>>& digests) const;
  static ClaimedKv TakeKv(Reservation& reservation);

  HandoffReceiverOptions options_;
  BlockPool& pool_;
  RadixTree& tree_;
  AdmissionPolicy admission_;
  uint64_t granted_ = 0;  // reservations granted so far
  uint64_t linked_ = 0;   // links accepted so far
  int64_t freed_by_process_end_ = 0;
  int64_t expired_leases_ = 0;
  int64_t failed_checks_ = 0;
  uint64_t first_generation_;  // derived from the incarnation
  absl::flat_hash_map<WriterId, Writer> links_;
  Reservations reservations_;
  Quarantine quarantine_;
  // Claimed reservations whose blocks are being checked. Messages do not affect them.
  Reservations checks_;
  std::deque<ReservationId> to_be_checked_;  // those of checks_ that NextCheck has not returned
  RefusedReservations refused_;
  KeptRoom kept_;
};

}  // namespace baton
