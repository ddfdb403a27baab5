// The core of a prefill worker: prompts come in, and their KV goes to decode workers. The core is a
// state machine. Events and the time come in, and actions go out.
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
#include "engine/prefill/progress_log.h"
#include "engine/prefill/prompt.h"
#include "engine/prefill/scheduler.h"
#include "engine/prefill/step_cost.h"
#include "engine/prefill/token_counts.h"
#include "kv/block_pool.h"
#include "kv/radix_tree.h"
#include "model/batch.h"
#include "request/answers.h"
#include "request/jobs.h"

namespace baton {

struct PrefillEngineOptions {
  int64_t blocks = 0;         // of the slab
  int64_t vocab = 0;          // token ids are in [0, vocab)
  int64_t context = 0;        // the context length: upper bound on tokens of a prompt
  int64_t step_tokens = 512;  // upper bound on tokens computed per step, >= 16
  // The number of waiting tokens at which a streaming prompt takes part in a step with other
  // prompts. 0: the number at which the measured fixed cost is a quarter of the cost of a step of
  // these tokens alone. If the worker would idle, a smaller number of tokens of all streaming
  // prompts is enough: the one at which the fixed cost is two thirds.
  int64_t increment = 0;
  // Estimate of a step's fixed cost before steps were measured: the number of tokens whose
  // computation takes as long (StepCost). The default makes an increment 64 tokens.
  double fixed_tokens = 64.0 / 3;
  // Upper bound on the measured time of a step that computes only streaming prompts and
  // low-priority jobs. The number of their tokens in a step with other prompts has the same bound.
  // A closed prompt that arrives during such a step waits for at most about this time. In each
  // later step that it shares with these tokens, they delay it by at most about this time. One
  // block per step is always allowed. So is the number of tokens at which the fixed cost is half of
  // a step's cost.
  absl::Duration streaming_step = absl::Milliseconds(25);
  // Lower bound on the new blocks of an early hand-off.
  int64_t least_ahead = 8;
  // Upper bound on streaming prompts and low-priority jobs together, and upper bound on all other
  // requests. The bounds are separate so that a streaming prompt never keeps out the requests that
  // it waits for. Low-priority jobs are refused from half of the bound on.
  int64_t max_requests = 1024;
  double leased_share = 0.5;  // upper bound on the share of the blocks that leases hold
  StagingOptions staging{};   // for evicted blocks
  // `retry_after` of a refusal because of max_requests.
  absl::Duration overload_retry = absl::Seconds(1);
  HandoffSenderOptions sender;
};

// Counts since the start.
struct PrefillTotals {
  int64_t done = 0;    // requests
  int64_t failed = 0;  // requests, including those that were cancelled
  int64_t steps = 0;
  PrefillTokens tokens{};        // of requests that ended, without low-priority jobs
  PrefillTokens low_priority{};  // of low-priority jobs that ended
  // These two are parts of tokens.computed and tokens.dropped, and no token counts in both. Tokens
  // computed for requests that were cancelled or failed, and dropped tokens of all requests.
  int64_t wasted_tokens = 0;
  // Tokens computed for requests that found no room at a decode worker. The router sends most of
  // these requests again, which then find the KV in the cache. This worker gets no report of the
  // requests that end while they wait at the router.
  int64_t refused_tokens = 0;
  int64_t bytes_pushed = 0;
  int64_t evictions = 0;  // blocks
  HandoffTotals handoffs{};
};

// The load of a prefill worker, for placement and for metrics.
struct PrefillLoad {
  PrefillScheduler::Load queue;
  int64_t requests = 0;  // requests without a result
  BlockPool::Counts blocks;
  int64_t leased_blocks = 0;  // of the referenced blocks
  // For how long the running step has run, and the forecast of its time (StepCost). The copies of
  // staged KV count until they are complete. So copies that make progress do not look like a hung
  // step, and copies that never end do.
  absl::Duration step_time{}, step_forecast{};
  // For how long the closed prompt that was added first waits for its first step. Low-priority jobs
  // do not count.
  absl::Duration longest_wait{};
  KvStaging::Counts staged;
  PrefillTotals totals;
};

// The actions of HandoffSender, starts of requests, and results. Each request that was added has
// one result, a PrefillDone or a RequestFailed.
using PrefillAction =
    std::variant<SendLink, OpenConnection, CloseConnection, SendReserve, SendCommit, SendRelease, SendHeartbeat,
                 PushBlocks, DigestBlocks, ForgetPeer, PrefillStarted, PrefillDone, RequestFailed>;

// Runs the requests of a prefill worker. A hand-off moves the KV of a request to a decode worker
// (docs/design/overview.md, section 4). A request goes through these stages:
//
// 1. Add puts the prompt into the scheduler, and asks the decode worker for room. Both proceed at
//    the same time.
// 2. Steps compute the prompt's KV. Blocks are pushed to the decode worker as steps complete them.
//    The KV of the prompt's last chunk is pushed layer by layer.
// 3. When all blocks are at the decode worker, the hand-off is committed and the result is
//    PrefillDone. A prefill-only job has no hand-off. It is done when its KV is in the cache.
//
// The caller drives the steps:
//
//   while (const Batch* batch = engine.StartStep(now)) {
//     // If engine.copies() has copies, run them and call CopiesDone.
//     // If the batch has slices, run Backend::Forward and call LayerDone after each layer.
//     engine.FinishStep(status, now);
//   }
//
// These rules hold:
//
// - Blocks that the decode worker holds already are not pushed. They are computed only if they come
//   before a missing block.
// - Early hand-offs move blocks of a streaming prompt to the probable decode worker, which keeps
//   them in its cache.
// - If the decode worker has no room, the request fails at once with RESOURCE_EXHAUSTED. The router
//   waits for room, not the engine. Meanwhile the KV is in the cache, where it can be evicted, so
//   the request does not delay other requests.
// - A request refers to its blocks until its result. If it is done and has a lease, the KV of its
//   first tokens is leased or protected (KvLease).
//
// Not thread-safe. The caller must call TakeActions and staging().TakeTransfers after each event.
// Events of hand-offs go to sender().
class PrefillEngine {
 public:
  explicit PrefillEngine(PrefillEngineOptions options);

  // Adds a job. Returns nothing if the job was added, and its result is an action. Otherwise
  // returns a refusal and keeps nothing of the job:
  //
  // - INVALID_ARGUMENT names field, limit and value. It also refuses a prompt that can never fit.
  // - ALREADY_EXISTS: a request with this id is running.
  // - RESOURCE_EXHAUSTED, with `retry_after`: the worker has max_requests requests.
  std::optional<RequestFailed> Add(PrefillJob job, absl::Time now);
  // Appends an increment to a streaming prompt. If the tokens are invalid or can never fit, the
  // request fails with INVALID_ARGUMENT. Does nothing if the request is unknown, failed or closed.
  void Append(PrefillAppend append, absl::Time now);
  // Cancels a request. Its result is CANCELLED, as soon as no push of the request is in flight.
  // Does nothing if the request is unknown or has failed.
  void Cancel(const RequestId& id, absl::Time now);
  // Fails all streaming prompts and low-priority jobs. A streaming prompt may wait long for tokens,
  // and another worker can compute it. No client waits for a low-priority job.
  void FailYielding(const absl::Status& status, absl::Time now);
  // Fails all requests, and ends all leases and session protections.
  void FailAll(const absl::Status& status, absl::Time now);
  // Ends the leases of one router. Session protections stay.
  void EndLeases(LeaseHolder holder) { scheduler_.leases().EndAllOf(holder); }

  // Plans a step. Returns null if there is nothing to do. The caller first runs copies(), then the
  // batch, which is empty if the step has only copies. Both are valid until FinishStep, which must
  // follow.
  const Batch* StartStep(absl::Time now);
  const StagedCopies& copies() const { return scheduler_.staging().copies(); }
  // The copies of the running step have ended and took `took`. REQUIRES: the step has copies.
  void CopiesDone(absl::Duration took);
  // Backend::Forward has stored this layer of the running step.
  void LayerDone(int64_t layer, absl::Time now);
  // Ends the running step with the status of Backend::Forward. If the status is an error, the
  // requests that the step computed tokens for fail.
  void FinishStep(const absl::Status& status, absl::Time now);

  HandoffSender& sender() { return sender_; }
  KvStaging& staging() { return scheduler_.staging(); }
  std::vector<PrefillAction> TakeActions(absl::Time now);
  void Tick(absl::Time now);
  // Returns the time at which Tick has something to do next.
  absl::Time NextTick() const {
    return std::min({sender_.NextTick(), scheduler_.leases().NextTick(), scheduler_.session_protections().NextTick(),
                     scheduler_.staging().NextTick()});
  }

  // Returns true if there are no requests, no step and no hand-offs.
  bool idle() const { return scheduler_.prompts().empty() && !scheduler_.step_running() && sender_.idle(); }
  // `now`: for the times of the load. Without it, these times are zero.
  PrefillLoad load(absl::Time now = absl::InfinitePast()) const;
  void CheckInvariants() const;

 private:
  // An early hand-off. It may outlive the prompt.
  struct AheadPart {
    RequestId request;
    WorkerAddress to;
    int64_t blocks = 0;
    BlockKey last{};                  // key of the last block
    std::vector<BlockRef> sources{};  // the blocks; empty until the decode worker has room for them
  };
  std::vector<BlockKey> NextKeys(const PrefillPrompt& prompt, std::span<const TokenId> tokens, int64_t kv_tokens) const;
  absl::Status CheckTokens(std::span<const TokenId> tokens, int64_t before, int64_t least) const;
  absl::Status Validate(const PrefillJob& job) const;
  void AddStreaming(PrefillJob job, absl::Time now);
  void AddEmpty(PrefillPrompt prompt);
  void Restart(const RequestId& id);
  absl::Status Extend(const PrefillAppend& append);
  void Close(const PrefillAppend& append, absl::Time now);
  void SendAhead(const PrefillPrompt& prompt, absl::Time now);
  void AheadReserved(uint64_t part, absl::Time now);
  void AheadEnded(uint64_t part, int64_t bytes, const absl::Status& status, absl::Time again, absl::Time now);
  void NoteStarted(const RequestId& id, absl::Time at);
  void NoteStep(absl::Time now, const RequestId* only = nullptr);
  void OnProgress(absl::Time step_started, absl::Time now);
  void PushReady(const PrefillPrompt& prompt, const PrefillProgress& progress, int64_t layers, absl::Time now);
  void NoteComplete(const RequestId& id, absl::Time now);
  void HandleSender(absl::Time now);
  void Handle(HandoffReserved reserved, absl::Time now);
  void Handle(HandoffCommitted committed, absl::Time now);
  void Handle(HandoffFailed failed, absl::Time now);
  template <typename Action>
  void Handle(Action action, absl::Time now);
  void Fail(const RequestId& id, const absl::Status& status, absl::Time now);
  void Done(PrefillDone done, absl::Time now);
  void CountTokens(const PrefillPrompt& prompt, const PrefillTokens& tokens, int64_t PrefillTotals::*unused);
  void Failed(RequestFailed failed);
  StreamingLimits CurrentLimits() const;
  absl::Duration LongestWait(absl::Time now) const;

  PrefillEngineOptions options_;
  BlockPool pool_;
  RadixTree tree_;
  StepCost step_cost_;          // before scheduler_, whose constructor uses it
  PrefillScheduler scheduler_;  // owns the requests
  HandoffSender sender_;
  int64_t yielding_ = 0;                 // number of requests that yield
  std::map<uint64_t, AheadPart> ahead_;  // early hand-offs in flight, by part
  uint64_t parts_made_ = 0;
  std::deque<RequestId> ahead_waits_;  // prompts that wait until fewer of ahead_ are in flight
  // The worker and the last block of each early hand-off that has not failed. Another prompt does
  // not begin an early hand-off with exactly these full blocks.
  absl::flat_hash_set<std::pair<WorkerAddress, BlockKey>> ahead_sent_;
  absl::Time step_started_;
  absl::Duration step_copied_;  // time of the running step's copies, once they are complete
  absl::Duration step_copies_;  // forecast of the running step's copies, until they are complete
  int64_t step_computes_ = 0;   // tokens that the running step computes
  PrefillTotals totals_;
  std::vector<PrefillAction> actions_;
};

}  // namespace baton
