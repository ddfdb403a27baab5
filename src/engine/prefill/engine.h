// The prefill worker's core: prompts come in, KV goes to decode workers. A state machine: events and the time come in,
// actions go out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/handoff/sender.h"
#include "engine/prefill/prompt.h"
#include "engine/prefill/scheduler.h"
#include "engine/prefill/step_cost.h"
#include "kv/block_pool.h"
#include "kv/radix_tree.h"
#include "model/batch.h"
#include "request/answers.h"
#include "request/jobs.h"

namespace baton {

struct PrefillEngineOptions {
  int64_t blocks = 0;         // of the slab
  int64_t vocab = 0;          // token ids are below this
  int64_t context = 0;        // most tokens in a prompt
  int64_t step_tokens = 512;  // most tokens computed in a step, >= 16
  // Tokens of an open job that are worth a share of a step with others. 0: as many as make a step's fixed cost, as
  // measured, a quarter of the whole. Where the worker would idle, so many that it is two thirds.
  int64_t increment = 0;
  // Upper bound on the time that open and low-priority jobs fill a step, as measured. They compute
  // at least a block, and at least as many tokens as make a step's fixed cost half of the whole. A
  // job that arrives waits this long at most for them in the step that runs, and as long again in
  // each step that it shares.
  absl::Duration open_step = absl::Milliseconds(25);
  // Blocks of an open job that are worth a hand-off of their own.
  int64_t least_ahead = 8;
  // Most open or background jobs, and most others: what grows keeps out nobody, nor what it waits for.
  int64_t max_requests = 1024;
  double leased_share = 0.5;                         // of the blocks, which leases hold at most
  StagingOptions staging{};                          // of evicted blocks
  absl::Duration overload_retry = absl::Seconds(1);  // the hint given when max_requests are there
  HandoffSenderOptions sender;
};

// Since the start.
struct PrefillTotals {
  int64_t done = 0;    // requests
  int64_t failed = 0;  // requests, cancelled ones among them
  int64_t steps = 0;
  int64_t cached_tokens = 0;  // of requests that are done, as in PrefillDone
  int64_t shared_tokens = 0;
  int64_t computed_tokens = 0;
  int64_t host_tokens = 0;  // of cached_tokens: evicted ones, brought back from host memory
  int64_t disk_tokens = 0;  // of cached_tokens: from disk
  int64_t bytes_pushed = 0;
  int64_t evictions = 0;  // blocks
  HandoffTotals handoffs{};
};

// For placement and for metrics.
struct PrefillLoad {
  PrefillScheduler::Load queue;
  int64_t requests = 0;  // that have no result yet
  BlockPool::Counts blocks;
  int64_t leased_blocks = 0;  // of those that are referenced
  KvStaging::Counts staged;
  PrefillTotals totals;
};

// The sender's actions as they are; then the results, one for each request added.
using PrefillAction = std::variant<SendLink, OpenConnection, CloseConnection, SendReserve, SendCommit, SendRelease,
                                   SendHeartbeat, PushBlocks, DigestBlocks, ForgetPeer, PrefillDone, RequestFailed>;

// Room at the decode worker is asked for when the job is added, while the prompt computes; blocks are pushed as steps
// complete them, those of the last step layer by layer; what the decode worker holds already is neither pushed nor,
// unless what is missing depends on it, computed. The blocks of an open job go to the decode worker that it will
// probably use ahead of it, as cached ones. A request that finds no room fails at once, RESOURCE_EXHAUSTED with
// the decode worker's hint: waiting for room is the router's part, and meanwhile its blocks are ordinary cached ones,
// so it holds up nobody. A request's blocks stay referenced until its result; a job that asks for a lease and is done
// leaves the KV of its first tokens referenced until the lease ends.
//
// Not thread-safe. Every event is followed by TakeActions; events of the hand-off go to sender().
class PrefillEngine {
 public:
  explicit PrefillEngine(PrefillEngineOptions options);

  // A refusal, after which nothing is remembered: INVALID_ARGUMENT (field, limit, got; also a prompt that can never
  // fit), ALREADY_EXISTS, RESOURCE_EXHAUSTED with a retry hint. Nothing if the job was added: its result is an action.
  std::optional<RequestFailed> Add(PrefillJob job, absl::Time now);
  // What comes of an open job. Tokens that it cannot have end it with INVALID_ARGUMENT. Nothing if the job is not there
  // (any more) or not open.
  void Append(PrefillAppend append, absl::Time now);
  // The result is CANCELLED, as soon as no push of the request is in flight. Nothing if the request is not there (any
  // more).
  void Cancel(const RequestId& id, absl::Time now);
  // What nobody waits for, and what itself waits for tokens: it may for long, and can be computed elsewhere.
  void FailOverlapping(const absl::Status& status, absl::Time now);
  // Ends all leases, too.
  void FailAll(const absl::Status& status, absl::Time now);
  void EndLeases(LeaseHolder holder) { scheduler_.leases().EndAllOf(holder); }

  // Plans a step; null if there is nothing to do. First come the copies, then the batch, which is empty if there are
  // copies only. Both are valid until FinishStep, which must follow.
  const Batch* StartStep(absl::Time now);
  const StagedCopies& copies() const { return scheduler_.staging().copies(); }
  // The running step's copies are done, and took so long: its batch begins now.
  void CopiesDone(absl::Duration took);
  // Backend::Forward has stored this layer of the running step.
  void LayerDone(int64_t layer, absl::Time now);
  // With Backend::Forward's status. If it failed, so do the requests that the step computed for.
  void FinishStep(const absl::Status& status, absl::Time now);

  HandoffSender& sender() { return sender_; }
  KvStaging& staging() { return scheduler_.staging(); }  // TakeTransfers follows every event, too
  std::vector<PrefillAction> TakeActions(absl::Time now);
  void Tick(absl::Time now);  // of all parts
  absl::Time NextTick() const {
    return std::min({sender_.NextTick(), scheduler_.leases().NextTick(), scheduler_.session_leases().NextTick(),
                     scheduler_.staging().NextTick()});
  }

  bool idle() const { return scheduler_.prompts().empty() && !scheduler_.step_running() && sender_.idle(); }
  PrefillLoad load() const;
  void CheckInvariants() const;

 private:
  // A hand-off of a streaming prompt's first blocks. It may outlive the prompt.
  struct AheadPart {
    RequestId request;
    WorkerAddress to;
    int64_t blocks = 0;
    BlockKey last{};
    std::vector<BlockRef> sources{};  // empty until the decode worker has room for them
  };
  std::vector<BlockKey> NextKeys(const PrefillPrompt& prompt, std::span<const TokenId> tokens, int64_t kv_tokens) const;
  absl::Status CheckTokens(std::span<const TokenId> tokens, int64_t before, int64_t least) const;
  absl::Status Validate(const PrefillJob& job) const;
  void AddOpen(PrefillJob job, absl::Time now);
  void AddEmpty(PrefillPrompt prompt);
  void Restart(const RequestId& id);
  absl::Status Extend(const PrefillAppend& append);
  void Close(const PrefillAppend& append, absl::Time now);
  void SendAhead(PrefillPrompt& prompt, absl::Time now);
  void AheadReserved(uint64_t part, absl::Time now);
  void AheadEnded(uint64_t part, int64_t bytes, const absl::Status& status, absl::Time again, absl::Time now);
  void NoteStep(absl::Time now, const RequestId* only = nullptr);
  void OnProgress(absl::Time step_started, absl::Time now);
  void PushReady(const PrefillPrompt& prompt, const PrefillScheduler::Progress& progress, int64_t layers,
                 absl::Time now);
  void NoteComplete(const RequestId& id, absl::Time now);
  void HandleSender(absl::Time now);
  void Handle(HandoffReserved reserved, absl::Time now);
  void Handle(HandoffCommitted committed, absl::Time now);
  void Handle(HandoffFailed failed, absl::Time now);
  template <typename Action>
  void Handle(Action action, absl::Time now);
  void Fail(const RequestId& id, const absl::Status& status, absl::Time now);
  void Done(PrefillDone done, absl::Time now);
  void Failed(RequestFailed failed);
  OpenPromptLimits OpenLimits() const;

  PrefillEngineOptions options_;
  BlockPool pool_;
  RadixTree tree_;
  StepCost step_cost_;          // before the scheduler, whose limits it sets
  PrefillScheduler scheduler_;  // owns the requests
  HandoffSender sender_;
  int64_t yielding_ = 0;                 // requests of which Yields() is true
  std::map<uint64_t, AheadPart> ahead_;  // under way
  uint64_t parts_made_ = 0;
  std::deque<RequestId> ahead_waits_;
  absl::flat_hash_set<std::pair<WorkerAddress, BlockKey>> ahead_sent_;  // their last blocks: siblings need not
  absl::Time step_started_;
  absl::Duration step_copied_;  // how long the running step's copies took
  int64_t step_computes_ = 0;   // tokens, the running step
  PrefillTotals totals_;
  std::vector<PrefillAction> actions_;
};

}  // namespace baton
