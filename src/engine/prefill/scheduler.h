// Which prompt tokens run next: chunks of many prompts in one step, each token computed once (design idea 4).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "engine/prefill/admission.h"
#include "engine/prefill/kv_leases.h"
#include "engine/prefill/prompt.h"
#include "engine/prefill/prompt_queue.h"
#include "engine/prefill/session_leases.h"
#include "engine/prefill/staging_client.h"
#include "engine/prefill/streaming_share.h"
#include "kv/radix_tree.h"
#include "kv/staging/staging.h"
#include "model/batch.h"
#include "request/jobs.h"

namespace baton {

// What is kept of prompts beside the cache, in blocks.
struct KeptPrompts {
  int64_t leased = 0;  // of the pool, which leases hold at most
  StagingOptions staging{};
};

// Plans each step: what of which prompts it computes (design idea 4). The order of prompts is PromptQueue's, room for
// them PrefillAdmission's, the share of streaming prompts StreamingShare's, evicted KV StagingClient's.
//
// A step plans whole blocks (the end of a prompt aside), and a block is promised for just as long as the step that
// writes it. So a prompt that meets a promised block takes it over within the same step, attending to what another
// slice of the batch writes; and aborting a request never takes anything from another: what a step has begun to write
// becomes ready whoever asked for it.
//
// A prompt whose turn it is but whose blocks are not free holds up those that would overtake it, of other tenants too.
// Those may overtake it in a turn of their own; but each of them costs them at least a block, and its own tenant
// nothing as long as it computes nothing, so that it is its turn again: only prompts in the background, which come
// after all others, may starve.
//
// A streaming prompt is computed as it comes, and holds up no other prompt: where another lacks room it gives its
// blocks back to the cache, and takes them up again when it can. So its progress is reported only after it closes.
// Prompts in the background yield likewise, closed or not, and to streaming prompts as well. They only go on
// with what another prompt was, so what they take up counts as no use of it: a session's KV is used again when its next
// turn comes, and not before.
//
// Not thread-safe. Pool and tree must outlive it; it alone takes blocks from them.
class PrefillScheduler {
 public:
  // `step_tokens`: computed in a step at most, at least one block.
  PrefillScheduler(BlockPool& pool, RadixTree& tree, int64_t step_tokens, OpenPromptLimits open, KeptPrompts kept = {});
  ~PrefillScheduler();

  // INVALID_ARGUMENT, with needed and total blocks, if the prompt can never fit. REQUIRES: the id
  // is new, and the scheduler's fields are unset.
  absl::Status Add(PrefillPrompt prompt);
  // Appends to a streaming prompt. `tokens` are those that it has and the new ones; it gets KV for [0, kv_tokens) now,
  // and `keys` are those of the full blocks that this completes. `last`: the prompt is complete. INVALID_ARGUMENT as
  // from Add, with nothing changed. REQUIRES: known, open, neither stopped nor removed.
  absl::Status Extend(const RequestId& id, TokenBuffer tokens, int64_t kv_tokens, std::span<const BlockKey> keys,
                      bool last);
  // REQUIRES: known, not removed.
  void SetQueueOrder(const RequestId& id, absl::Time queue_order);
  // Only positions [0, tokens) are still wanted: the decode worker holds the rest. May be progress of a prompt that was
  // open.
  void Limit(const RequestId& id, int64_t tokens);
  // Nothing more of it is planned; its blocks stay. What a running step writes for it is still written.
  void Stop(const RequestId& id);
  // Forgets the prompt and gives its blocks back. If the running step uses its blocks, the
  // scheduler keeps the prompt, outside prompts(), until that step is over. REQUIRES: known.
  void Remove(const RequestId& id);

  // Positions [begin, end) of a request have got KV. `begin` is a multiple of 16.
  struct Progress {
    RequestId request_id;
    int64_t begin = 0;
    int64_t end = 0;
  };
  // Plans the next step: its copies, then its batch, either of which may be empty. Where step_running() says that there
  // is one, FinishStep must follow; both are valid until then. Whatever the cache has is taken up here and is progress
  // at once.
  const Batch& PlanStep();
  bool step_running() const { return !step_.empty(); }
  // What the running step's slices compute that complete their requests: for moving it layer by layer.
  std::vector<Progress> LastSlices() const;
  // Calls `visit` for each request that the running step brings further, with the tokens computed for it: 0 if others
  // compute all that it gets.
  void ForEachInStep(absl::FunctionRef<void(const RequestId& id, int64_t tokens)> visit) const;
  // The step's KV is written. For a failed step (`ok` false) promises are broken, requests that waited for them are
  // planned anew, and those with slices of their own are stopped: their ids are returned.
  std::vector<RequestId> FinishStep(bool ok);
  // Keeps the KV of the request's first tokens, in whole blocks, from now on. Where it holds them a running step is
  // over first. REQUIRES: known.
  void Lease(const RequestId& id, const KvLease& lease, LeaseHolder holder, absl::Time now);
  KvLeases& leases() { return leases_; }
  const KvLeases& leases() const { return leases_; }
  SessionLeases& session_leases() { return session_leases_; }
  const SessionLeases& session_leases() const { return session_leases_; }
  KvStaging& staging() { return staging_.staging(); }
  const KvStaging& staging() const { return staging_.staging(); }
  StreamingShare& streaming() { return streaming_; }
  const StreamingShare& streaming() const { return streaming_; }
  // Tokens of the running step of prompts that yielded when it was planned.
  int64_t yielding_tokens() const { return yielding_tokens_; }

  // Since the last call. Nothing of an open prompt; all that it has, from position 0, once it is closed and has room.
  std::vector<Progress> TakeProgress() { return std::exchange(progress_, {}); }
  // Open prompts that have got KV since the last call: for [0, ready_tokens), now, though they may give it back.
  std::vector<RequestId> TakeGrown() { return std::exchange(grown_, {}); }

  // The prompt has closed and has KV for all that it wants. False if it is unknown or removed.
  bool IsComplete(const RequestId& id) const;
  // All prompts that are not removed. A pointer to one is valid until its Remove.
  const PrefillPrompts& prompts() const { return prompts_; }
  // Null: unknown or removed. The caller may change `engine` alone.
  PrefillPrompt* Find(const RequestId& id) const;
  // REQUIRES: known, and not removed.
  const PrefillPrompt& prompt(const RequestId& id) const { return Get(id); }

  struct Load {
    int64_t waiting = 0;        // requests of which nothing is planned yet
    int64_t running = 0;        // requests admitted and not complete
    int64_t queued_tokens = 0;  // wanted, not planned yet, not known to be cached, nor in the background
  };
  Load load() const;
  void CheckInvariants() const;

 private:
  // What is left for a step that is being planned.
  struct StepRoom {
    int64_t tokens = 0;
    int64_t yielding_tokens = 0;                    // of those, for prompts that yield
    int64_t reserved = 0;                           // blocks promised to admitted prompts
    absl::btree_map<std::string, int64_t> spent{};  // by tenant, for its turns
  };

  PrefillPrompt& Get(const RequestId& id) const;
  void PlanPrompts(const std::vector<PrefillPrompt*>& order, absl::FunctionRef<bool(const PrefillPrompt&)> takes_part,
                   StepRoom& room);
  void GiveBack(PrefillPrompt& prompt);
  void ReportAll(PrefillPrompt& prompt);
  void Protect(PrefillPrompt& prompt);
  int64_t Advance(PrefillPrompt& prompt, int64_t budget);
  void TakeUp(PrefillPrompt& prompt, RadixTree::State state);
  void PlanSlice(PrefillPrompt& prompt, int64_t budget);
  void KeepPromises(PrefillPrompt& prompt);
  void RollBack(PrefillPrompt& prompt);
  void ForgetStep(bool ok);
  void SetDone(PrefillPrompt& prompt, int64_t done);

  BlockPool& pool_;
  RadixTree& tree_;
  const int64_t step_tokens_;
  KvLeases leases_;
  SessionLeases session_leases_;
  StagingClient staging_;
  StreamingShare streaming_;
  PrefillPrompts prompts_;  // owns them
  PromptQueue queue_;       // of those neither stopped nor planned to the end
  PrefillAdmission admission_;
  std::vector<std::unique_ptr<PrefillPrompt>> removed_;  // the running step uses their blocks
  std::vector<TokenBuffer> outgrown_;                    // while the running step reads them
  uint64_t arrivals_ = 0;
  int64_t yielding_tokens_ = 0;
  Batch batch_;
  // With planned > done, in the order of planning: a promise comes before its sharers.
  std::vector<PrefillPrompt*> step_;
  std::vector<Progress> progress_;
  std::vector<RequestId> grown_;
};

}  // namespace baton
