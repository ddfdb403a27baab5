// The planner of decode steps: continuous batching over a block pool that may run out of blocks. It
// chooses the sequences of each step and their blocks.
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
#include "engine/handoff/receiver.h"
#include "kv/block_table.h"
#include "kv/radix_tree.h"
#include "request/request_spec.h"

namespace baton {

struct DecodeSchedulerOptions {
  int32_t max_batch = 64;  // upper bound on sequences in one step
  // Upper bound on KV tokens of one sequence: the smaller of the model's context length and the
  // pool.
  int64_t positions = 0;
  // A request counts as arrived this much earlier for each level of its priority, up to 100 levels.
  absl::Duration time_per_priority = absl::Seconds(10);
};

// Names a sequence, and orders the sequences of one tenant. The smaller one comes first for blocks
// and for rows of the batch. The queue order of a sequence never changes, and priorities shift it
// by a bounded time. A sequence that waits long enough therefore comes first, so none starves.
struct SequenceId {
  // The queue order: arrival time plus arrival offset, minus `time_per_priority` per level of
  // priority.
  absl::Time queue_order;
  uint64_t number = 0;
  friend bool operator==(const SequenceId&, const SequenceId&) = default;
  friend bool operator<(const SequenceId& a, const SequenceId& b) {
    return std::tie(a.queue_order, a.number) < std::tie(b.queue_order, b.number);
  }
};

// A copy of one sequence's blocks between the slab and host memory.
struct SwapCopy {
  struct Piece {
    size_t index;  // position in host memory, in blocks
    BlockId block;
  };
  SequenceId sequence;
  // Host memory of the size of `pieces`. For a copy out, the caller allocates it.
  std::unique_ptr<std::byte[]>* host = nullptr;
  std::vector<Piece> pieces;
};

// One step. All copies out run first, then all copies in, then the batch.
struct DecodePlan {
  std::vector<SwapCopy> out;
  std::vector<SwapCopy> in;
  std::vector<SequenceId> batch;  // in the scheduler's order
  // The block table of each sequence of the batch. It covers the sequence's next token.
  std::vector<std::span<const BlockId>> tables;
  bool empty() const { return out.empty() && in.empty() && batch.empty(); }
  void Clear() {  // keeps the memory
    out.clear();
    in.clear();
    batch.clear();
    tables.clear();
  }
};

// Plans decode steps for the sequences of all tenants, and decides whether a new reservation fits.
//
// All sequences have one order. It goes in rounds. Round k has the k-th sequence of each tenant, so
// tenants with enough requests have equally many rows of the batch. SequenceId orders the sequences
// of one tenant. Priorities and arrival offsets have no effect on other tenants.
//
// If there is no block for a sequence's next token, sequences after it in the order are swapped
// out, the last one first. Their blocks are copied to host memory in the running step and released
// when the step is over. They are copied back when there is room. A sequence that waits for a
// block, for room or for a row of the batch is left out of the step and loses nothing.
//
// docs/design/decode_steps.md gives the reasons, and shows that every sequence ends.
//
// Not thread-safe. The pool and the tree must outlive it.
class DecodeScheduler {
 public:
  DecodeScheduler(DecodeSchedulerOptions options, BlockPool& pool, RadixTree& tree);

  // Decides whether a reservation fits. Running and swapped sequences, other reservations and the
  // expected growth of all of them count. If the worker has no other work, a reservation fits if
  // there is room for its first token. `blocks_now` is that of AdmissionPolicy.
  Admission Consider(const ReserveRequest& request, int64_t blocks_now,
                     const HandoffReceiver::Outstanding& outstanding) const;

  // Returns SequenceId::queue_order of a request that arrived at `arrived`.
  absl::Time QueueOrder(const RequestSpec& spec, absl::Time arrived) const;
  // Adds a sequence whose table holds the KV of [0, kv.kv_tokens). Its request arrived at
  // `arrived`. All requests without a tenant count as one tenant's. REQUIRES: `spec` outlives the
  // sequence.
  SequenceId Add(ClaimedKv kv, const RequestSpec& spec, absl::Time arrived);
  // Sets the key of the block that the sequence's last computed token completed. From now on, other
  // sequences may share the block. REQUIRES: all earlier blocks of the sequence have keys.
  void SetBlockKey(const SequenceId& id, const BlockKey& key);
  // Removes a sequence. If the running step has the sequence, its blocks are released only when
  // that step is over. REQUIRES: the running step does not copy the sequence. If the running step
  // has it, BeginNext has planned no further step.
  void Remove(const SequenceId& id);

  // Keeps the sequence out of steps that BeginNext plans. The caller removes the sequence when the
  // steps that have it are over.
  void StopPlanning(const SequenceId& id) { At(id).stopped = true; }

  // Plans a step. The plan is valid until FinishStep, which must follow. If the plan is empty,
  // nothing can run until blocks become free. REQUIRES: no step is running.
  const DecodePlan& BeginStep();
  // Plans the step after the running one, before the tokens of the running step are known. The plan
  // assumes one more token for each sequence of the running step.
  // - Sequences that certainly end with the running step are left out. If another sequence turns
  //   out to end with it, its row in the next step is discarded.
  // - Returns null if the step needs copies, or blocks that are not free, or has no sequence. The
  //   next BeginStep plans it in that case.
  // - The plan is valid until the running step's FinishStep, and the spans in `tables` until the
  //   one after. The `tables` of the running step are no longer valid.
  //
  // REQUIRES: a step is running, and no step after it is planned.
  const DecodePlan* BeginNext();
  // Returns false only if BeginNext would return null.
  bool MayBeginNext() const;
  // Drops the step that BeginNext planned.
  void DropNext();
  // Ends the running step. Each sequence of its batch has one more computed token. If BeginNext has
  // planned a step, that step is now the running one. REQUIRES: all that was planned for the
  // running step has happened.
  void FinishStep();

  const std::vector<BlockKey>& keys(const SequenceId& id) const { return At(id).kv.keys; }

  struct Counts {
    int64_t sequences = 0;
    int64_t batch = 0;  // in the last step
    int64_t swapped = 0;
    int64_t preemptions = 0;  // since the start
  };
  Counts counts() const;
  void CheckInvariants() const;

 private:
  struct Sequence {
    const RequestSpec* spec = nullptr;
    absl::Time arrived;
    ClaimedKv kv;  // grows with each step; its table is empty when swapped out
    // Blocks [0, shared) of the table are the blocks of the tree's nodes for keys [0, shared).
    size_t shared = 0;
    int64_t first_kv_tokens = 0;  // kv.kv_tokens before the output's first token
    int64_t max_kv_tokens = 0;    // upper bound on kv.kv_tokens at its end
    int64_t replayed_until = 0;   // tokens at earlier positions are known (DecodeStream::Resume)
    int32_t steps_in_flight = 0;  // unfinished steps that have it
    bool stopped = false;         // it ends with these steps (StopPlanning)
    bool swapped = false;
    bool swapping_out = false;          // the running step swaps it out
    std::unique_ptr<std::byte[]> host;  // [BlocksFor(kv.kv_tokens)] blocks when swapped out
  };
  using Sequences = std::map<SequenceId, Sequence>;
  using Order = std::vector<Sequences::iterator>;
  // For each block, the references that sequences hold which are being swapped out.
  using LeavingReferences = absl::flat_hash_map<BlockId, int64_t>;
  struct Step {
    DecodePlan plan;
    std::vector<Sequence*> batch;  // one for each row of the plan; null: removed since

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
  const Order& OrderNow();
  void OrderSequences();
  void Begin(const Step& step);
  static bool MayRunAgain(const Sequence& sequence);
  bool Grow(Sequence& sequence);
  bool GrowOne(Order::const_iterator position);
  bool SwapIn(Order::const_iterator position);
  void MakeRoom(Order::const_iterator for_sequence, int64_t blocks);
  void SwapOut(Sequences::iterator it);
  static int64_t GrowthOf(const Sequence& sequence);
  int64_t BlocksFreedBy(const Sequence& sequence, LeavingReferences& leaving) const;
  void ShareBlocks(Sequence& sequence);

  DecodeSchedulerOptions options_;
  BlockPool& pool_;
  RadixTree& tree_;
  Sequences sequences_;
  uint64_t added_ = 0;
  int64_t swapped_ = 0;
  int64_t preemptions_ = 0;

  Step step_, next_;  // the running step, and the step after it
  bool running_ = false, has_next_ = false;
  // Blocks that the running step may use and that no sequence has: the tables of sequences that
  // have ended, and blocks that ShareBlocks has replaced.
  std::vector<BlockTable> ended_;
  std::vector<BlockRef> replaced_;
  Order order_;  // all sequences, in order, unless order_changed_
  bool order_changed_ = false;
  LeavingReferences leaving_;
  // Blocks that become free when the step is over, excluding those that MakeRoom has set aside.
  int64_t releasing_ = 0;
};

}  // namespace baton
