// Which sequences a decode step runs, and which blocks they take: continuous batching over a pool that may run out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "engine/growth_estimate.h"
#include "engine/handoff_receiver.h"
#include "kv/block_table.h"
#include "kv/radix_tree.h"

namespace baton {

struct DecodeSchedulerOptions {
  int32_t max_batch = 64;  // sequences in one step
  int64_t positions = 0;   // most KV tokens of one sequence: context or pool, what is smaller
  absl::Duration priority_worth = absl::Seconds(10);    // a level of priority counts like having come this much earlier
  absl::Duration retry_after = absl::Milliseconds(50);  // what a reservation is told that does not fit now
};

// Names a sequence, and orders those of one tenant: the smaller has the better claim to blocks and to a place in the
// batch. A claim never changes and age always wins in the end, so no sequence starves, whatever the priorities.
struct SequenceId {
  absl::Time claim;  // when it came or counts as having come, less what its priority is worth
  uint64_t number = 0;
  friend bool operator==(const SequenceId&, const SequenceId&) = default;
  friend bool operator<(const SequenceId& a, const SequenceId& b) {
    return std::tie(a.claim, a.number) < std::tie(b.claim, b.number);
  }
};

// Blocks' bytes on their way between slab and host memory.
struct SwapCopy {
  struct Piece {
    size_t index;  // in host memory, of blocks
    BlockId block;
  };
  SequenceId sequence;
  std::unique_ptr<std::byte[]>* host = nullptr;  // swapping out: the shell allocates [pieces] blocks here
  std::vector<Piece> pieces;
};

// One step: first all copies out, then all copies in, then the batch.
struct DecodePlan {
  std::vector<SwapCopy> out;
  std::vector<SwapCopy> in;
  std::vector<SequenceId> batch;                 // in the order of their turns
  std::vector<std::span<const BlockId>> tables;  // of the batch: each has a place for the sequence's next token
  bool repeats = false;                          // the batch is the last step's, and there are no copies
  bool foreseen = false;                         // and all is as Foresee said
  bool empty() const { return out.empty() && in.empty() && batch.empty(); }
  void Clear() {  // keeps the memory
    out.clear();
    in.clear();
    batch.clear();
    tables.clear();
    repeats = false;
    foreseen = false;
  }
};

// Tenants have turns: first each one's best claim, then each one's second, and so on, so that all who have enough to do
// hold equally many places. In the k-th round they go by when the k-th of their sequences came, whatever it claims:
// what a priority is worth, it is worth among a tenant's own.
//
// When a sequence's next token has no block, the one whose turn is last is swapped out: its blocks are copied to
// host memory as they are, and given up when the step is over. It comes back, byte by byte, when there is room again;
// recomputing would not do, because another module made the prompt's KV (design idea 1). Sequences that wait for a
// block, for room or for a place in the batch are left out of a step and lose nothing.
//
// No livelock: a sequence is only ever swapped out for one with an earlier turn, and turns change only where one comes
// or ends. Whoever has the first always gets what it needs as soon as nobody but reservations holds the rest, and
// finishes; nobody gets before it who did not come, or count as having come, earlier, or claims its tenant's turn.
// Not thread-safe. Pool and tree must outlive it.
class DecodeScheduler {
 public:
  DecodeScheduler(DecodeSchedulerOptions options, BlockPool& pool, RadixTree& tree);

  // Whether a reservation fits beside all that runs, is reserved, is to come back, and is expected to grow. Alone in
  // the worker, whatever has room for its first token is admitted.
  Admission Consider(const AdmissionQuery& query, const HandoffReceiver::Outstanding& outstanding) const;

  // A sequence with all of [0, kv.kv_tokens) in its table.
  struct NewSequence {
    ClaimedKv kv;
    int64_t max_new_tokens = 0;  // that it makes at most
    int32_t priority = 0;        // among its tenant's
    absl::Time came;             // or when it counts as having come
    std::string tenant{};        // whose it is; empty: nobody's in particular, which is a tenant, too
  };
  SequenceId Add(NewSequence added);
  // The block that the sequence's last computed token completed has this key: from now on others may share it. It must
  // follow the keys that the sequence came with.
  void NameBlock(const SequenceId& id, const BlockKey& key);
  // The sequence is over after `made` tokens. REQUIRES: it is not part of a running step.
  void Remove(const SequenceId& id, int64_t made);

  // Plans a step; the plan stays valid until Foresee or FinishStep. Empty: nothing can run until blocks come free.
  // REQUIRES: no step runs.
  const DecodePlan& BeginStep();
  // While a step runs: the plan becomes the next step's, if that is likely to be the running one a token further.
  // False: it is not, and the plan stays as it is. REQUIRES: nobody reads the running step's tables any more.
  bool Foresee();
  // All that was planned has happened; each sequence of the batch has one computed token more.
  void FinishStep();

  const DecodePlan& plan() const { return plan_; }
  const std::vector<BlockKey>& keys(const SequenceId& id) const { return At(id).keys; }

  struct Counts {
    int64_t sequences = 0;
    int64_t batch = 0;  // in the last step
    int64_t swapped = 0;
    int64_t preemptions = 0;  // since the start
    double growth_share = 1;  // see GrowthEstimate
  };
  Counts counts() const;
  void CheckInvariants() const;

 private:
  struct Sequence {
    std::string tenant;
    absl::Time came;
    BlockTable table;  // empty when swapped out
    std::vector<BlockKey> keys;
    size_t shared = 0;  // blocks [0, shared) of the table are the tree's nodes of keys [0, shared)
    int64_t kv_tokens = 0;
    int64_t max_kv_tokens = 0;  // at the end of its longest possible life
    bool swapped = false;
    bool leaving = false;               // is being swapped out by the running step
    std::unique_ptr<std::byte[]> host;  // [BlocksFor(kv_tokens)] blocks when swapped out
  };
  using Sequences = std::map<SequenceId, Sequence>;
  using Turns = std::vector<Sequences::iterator>;
  using LeavingReferences = absl::flat_hash_map<BlockId, int64_t>;  // by sequences that are being swapped out

  const Sequence& At(const SequenceId& id) const;
  Sequence& At(const SequenceId& id);
  bool InPlan(const SequenceId& id) const;
  bool Repeat();
  bool GrowTables(int64_t further);
  void Plan();
  void OrderSequences();
  bool Grow(Sequence& sequence, int64_t further = 0);
  bool GrowOne(Turns::const_iterator turn);
  bool SwapIn(Turns::const_iterator turn);
  void MakeRoom(Turns::const_iterator claimant, int64_t blocks);
  void SwapOut(Sequences::iterator it);
  int64_t Releases(const Sequence& sequence, LeavingReferences& leaving) const;
  void ShareBlocks(Sequence& sequence);

  DecodeSchedulerOptions options_;
  BlockPool& pool_;
  RadixTree& tree_;
  GrowthEstimate growth_;
  Sequences sequences_;
  uint64_t added_ = 0;
  int64_t swapped_ = 0;
  int64_t preemptions_ = 0;

  DecodePlan plan_;
  Turns turns_;  // of all sequences, unless some came or ended since the last step
  bool turns_changed_ = false;
  std::vector<Sequence*> batch_;  // of the plan
  bool repeatable_ = false;       // as long as no sequence comes or ends and blocks suffice
  bool foreseen_ = false;         // the plan is the next step's, as long as it repeats and no table changes
  bool running_ = false;
  LeavingReferences leaving_;
  int64_t releasing_ = 0;  // blocks that come free when the step is over and that nobody has claimed yet
};

}  // namespace baton
