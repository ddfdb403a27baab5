// Which sequences a decode step runs, and which blocks they take: continuous batching over a pool that may run out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "engine/decode/growth_estimate.h"
#include "engine/handoff/receiver.h"
#include "kv/block_table.h"
#include "kv/radix_tree.h"
#include "request/request_spec.h"

namespace baton {

struct DecodeSchedulerOptions {
  int32_t max_batch = 64;  // sequences in one step
  int64_t positions = 0;   // most KV tokens of one sequence: context or pool, what is smaller
  absl::Duration priority_worth = absl::Seconds(10);  // a level of priority counts like having come this much earlier
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
  bool empty() const { return out.empty() && in.empty() && batch.empty(); }
  void Clear() {  // keeps the memory
    out.clear();
    in.clear();
    batch.clear();
    tables.clear();
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
  // the worker, whatever has room for its first token is admitted. `blocks_now`: see AdmissionPolicy.
  Admission Consider(const ReserveRequest& request, int64_t blocks_now,
                     const HandoffReceiver::Outstanding& outstanding) const;

  // A sequence with all of [0, kv.kv_tokens) in its table, of a request that came at `arrived`. Requests without a
  // tenant are those of one tenant, too. REQUIRES: `spec` outlives the sequence.
  SequenceId Add(ClaimedKv kv, const RequestSpec& spec, absl::Time arrived);
  // The block that the sequence's last computed token completed has this key: from now on others may share it. It must
  // follow the keys that the sequence came with.
  void NameBlock(const SequenceId& id, const BlockKey& key);
  // The sequence is over after `made` tokens. Where the running step has it still, nobody else has its blocks before
  // that is over. REQUIRES: the running step does not copy it; no step that BeginNext planned has it.
  void Remove(const SequenceId& id, int64_t made);

  // The sequence is removed when the steps that have it are over.
  void EndsWithItsStep(const SequenceId& id) { At(id).ends = true; }

  // Plans a step; the plan stays valid until its FinishStep. Empty: nothing can run until blocks come free. REQUIRES:
  // no step runs.
  const DecodePlan& BeginStep();
  // While a step runs: plans the one after it, which begins before it is known what the running one makes. Each of that
  // one's sequences is one token further then; those that certainly end with it are left out, and those of which that
  // turns out later run in vain. Null: it takes copies or blocks that are not there, or nobody is in it, and the next
  // BeginStep sees to it. Valid until FinishStep, its tables until the one after. Tables of the running step are not
  // valid any more. REQUIRES: no such step was begun yet.
  const DecodePlan* BeginNext();
  // False: it would certainly be null.
  bool MayBeginNext() const;
  // What BeginNext planned does not happen.
  void DropNext();
  // All that was planned for the running step has happened; each sequence of its batch has one computed token more.
  // What BeginNext planned is the running step now.
  void FinishStep();

  const std::vector<BlockKey>& keys(const SequenceId& id) const { return At(id).kv.keys; }

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
    const RequestSpec* spec = nullptr;
    absl::Time came;
    ClaimedKv kv;               // grows with each step; its table is empty when swapped out
    size_t shared = 0;          // blocks [0, shared) of the table are the tree's nodes of keys [0, shared)
    int64_t max_kv_tokens = 0;  // at the end of its longest possible life
    int32_t begun = 0;          // steps that have it and are not finished
    bool ends = false;          // with them
    bool swapped = false;
    bool leaving = false;               // is being swapped out by the running step
    std::unique_ptr<std::byte[]> host;  // [BlocksFor(kv.kv_tokens)] blocks when swapped out
  };
  using Sequences = std::map<SequenceId, Sequence>;
  using Turns = std::vector<Sequences::iterator>;
  using LeavingReferences = absl::flat_hash_map<BlockId, int64_t>;  // by sequences that are being swapped out
  struct Step {
    DecodePlan plan;
    std::vector<Sequence*> batch;  // of the plan; null: it was removed since

    void Clear() {  // keeps the memory
      plan.Clear();
      batch.clear();
    }
    void Add(Sequences::iterator it) {
      plan.batch.push_back(it->first);
      plan.tables.push_back(it->second.kv.table.ids());
      batch.push_back(&it->second);
    }
  };

  const Sequence& At(const SequenceId& id) const;
  Sequence& At(const SequenceId& id);
  bool IsCopied(const SequenceId& id) const;
  const Turns& TurnsNow();
  void OrderSequences();
  void Begin(const Step& step);
  static bool GoesOn(const Sequence& sequence);
  bool Grow(Sequence& sequence);
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

  Step step_, next_;  // the running one, and the one after it
  bool running_ = false, has_next_ = false;
  // What the running step may use and is nobody's any more: sequences that ended, and blocks in whose place their
  // sequence has others.
  std::vector<BlockTable> ended_;
  std::vector<BlockRef> replaced_;
  Turns turns_;  // of all sequences, unless some came or ended since they were ordered
  bool turns_changed_ = false;
  LeavingReferences leaving_;
  int64_t releasing_ = 0;  // blocks that come free when the step is over and that nobody has claimed yet
};

}  // namespace baton
