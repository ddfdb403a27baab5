// Which prompt tokens run next: chunks of many prompts in one step, each token computed once (design idea 4).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "engine/prefill/kv_leases.h"
#include "engine/prefill/session_leases.h"
#include "engine/prefill/tenant_turns.h"
#include "kv/block_table.h"
#include "kv/radix_tree.h"
#include "kv/staging/staging.h"
#include "model/batch.h"
#include "request/request.h"

namespace baton {

struct PrefillTask {
  RequestId request_id;
  std::vector<TokenId> tokens;  // those that KV is made for
  std::vector<BlockKey> keys;   // of their full blocks; a partial last block is private
  std::string tenant{};         // tenants take turns; empty is one as well
  int32_t priority = 0;         // of a tenant's the higher runs first; see kBackgroundPriority
  absl::Time turn{};            // among equal priorities: the earlier first, then what was added first
  bool open = false;            // Extend brings more; until the last of it only whole blocks, each with its key
};

struct OpenPromptLimits {
  // An open prompt takes part in a step beside others once this many of its tokens wait.
  int64_t increment = 64;
  // Of all open prompts, computed in a step at most, at least one block. Beside a closed prompt they compute no more
  // than this from its arrival to its end, the step that ran when it came included.
  int64_t step_tokens = 512;
  // Open prompts have a step where the worker would idle once this many tokens of all of them wait. Where a step of few
  // tokens takes as long as one of many, as on a GPU, a few gain nothing, and a prompt that is closed meanwhile has to
  // wait for that step.
  int64_t alone = 1;
};

// What is kept of prompts beside the cache, in blocks.
struct KeptPrompts {
  int64_t leased = 0;  // of the pool, which leases hold at most
  StagingOptions staging{};
};

// How a request came to the tokens that it has KV for.
struct PrefillCounters {
  int32_t cached = 0;                    // were ready, or staged, when it was added
  int32_t shared = 0;                    // another request computed them since
  int32_t computed = 0;                  // it computed them itself
  int32_t from_host = 0, from_disk = 0;  // it brought them back from where evicted blocks are staged
};

// A step plans whole blocks (the end of a prompt aside), and a block is promised for just as long as the step that
// writes it. So a request that meets a promised block takes it over within the same step, attending to what another
// slice of the batch writes; and aborting a request never takes anything from another: what a step has begun to write
// becomes ready whoever asked for it.
//
// Order: tenants take turns (engine/prefill/tenant_turns.h), and a step goes on with the next tenant where one leaves
// something of it. Of a tenant's: priority, turn, then first come first served. In every eighth step a tenant's turn
// begins with its oldest request, and a request whose turn it is but whose blocks are not free holds up those that
// would overtake it, of other tenants too. Those may overtake it in a turn of their own; but each of them costs them at
// least a block, and its own tenant nothing as long as it computes nothing, so that it is its turn again: nobody
// starves but those in the background, which come after all others.
//
// A request is admitted when all the blocks it can still need are free or can be evicted, beside those promised to
// requests admitted before it. So an admitted request never waits for blocks, and there is no deadlock.
//
// An open prompt (design idea 3) is computed as it comes, when its share of a step is worth it and after the others of
// its tenant and priority: overlap is opportunistic. It holds up nobody: for room that another request lacks it gives
// its blocks back to the cache, and takes them up again when it can. So what is told of it is told once it has ended.
// What is in the background yields likewise, closed or not, and to open prompts as well; it takes room from nobody.
//
// Leases hold up nobody either: they end, first those that would end first, where a request lacks room. Those of
// sessions hold nothing, they are an order of eviction.
//
// What is evicted is staged, and what is staged is brought back as part of a step, before its batch runs; it is
// promised like what is computed. What a request that comes will find staged is held and, where it is on disk, read: it
// is not planned until that is over, and holds up nobody meanwhile. Much of it comes back over several steps. What
// one that waits to begin found in the cache is spared, unless it is open, and waits for tokens, or of negative
// priority, and waits for all others. For one in the background nothing is held or read, and what it takes up counts as
// no use of it: it only goes on with what another prompt was, so a session's KV is used again when its next turn comes,
// and not before.
//
// Not thread-safe. Pool and tree must outlive it; nobody else takes blocks from them.
class PrefillScheduler {
 public:
  // `step_tokens`: computed in a step at most, at least one block.
  PrefillScheduler(BlockPool& pool, RadixTree& tree, int64_t step_tokens, OpenPromptLimits open, KeptPrompts kept = {});
  ~PrefillScheduler();

  // INVALID_ARGUMENT, with needed and total blocks, if the prompt can never fit. REQUIRES: the id is new.
  absl::Status Add(PrefillTask task);
  // The next tokens of an open prompt and the keys of the full blocks that they complete. `last`: it is open no more.
  // INVALID_ARGUMENT as from Add, and nothing of it is taken. REQUIRES: known, open, neither stopped nor removed.
  absl::Status Extend(const RequestId& id, std::span<const TokenId> tokens, std::span<const BlockKey> keys, bool last);
  void LimitOpen(OpenPromptLimits open);
  // Another turn. REQUIRES: known, not removed.
  void SetTurn(const RequestId& id, absl::Time turn);
  // Only positions [0, tokens) are still wanted: the decode worker holds the rest. May be progress of a prompt that was
  // open.
  void Limit(const RequestId& id, int64_t tokens);
  // Nothing more of it is planned; its blocks stay. What a running step writes for it is still written.
  void Stop(const RequestId& id);
  // Forgets the request and gives its blocks back, after the running step where that uses them.
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
  // Tokens that the running step computes for prompts that were open when it was planned, or in the background.
  int64_t open_in_step() const { return open_in_step_; }
  // The running step is of prompts that were open when it was planned, or in the background, and completes none, and a
  // prompt that is whole and not in the background has come since.
  bool StepHoldsUp() const { return step_of_open_ && whole_came_ && !step_completes_; }
  // Ends the running step as if it had never been planned: what it has written is lost. So much of it was done, in
  // [0, 1], which prompts that are whole have waited for. REQUIRES: StepHoldsUp(), now or since the step was planned:
  // what is closed meanwhile may have made it false.
  void BreakOffStep(double done);
  // Keeps the KV of the request's first tokens, in whole blocks, from now on. Where it holds them a running step is
  // over first. REQUIRES: known.
  void Lease(const RequestId& id, const KvLease& lease, LeaseHolder holder, absl::Time now);
  KvLeases& leases() { return leases_; }
  const KvLeases& leases() const { return leases_; }
  SessionLeases& session_leases() { return session_leases_; }
  const SessionLeases& session_leases() const { return session_leases_; }
  KvStaging& staging() { return staging_; }
  const KvStaging& staging() const { return staging_; }

  // Since the last call. Nothing of an open prompt; all that it has, from position 0, once it is closed and has room.
  std::vector<Progress> TakeProgress() { return std::exchange(progress_, {}); }
  // Open prompts that have got KV since the last call: for [0, ready_tokens), now, though they may give it back.
  std::vector<RequestId> TakeGrown() { return std::exchange(grown_, {}); }

  // The request has KV for all it wants. Unknown and removed requests are not complete.
  // Nor is an open one.
  bool IsComplete(const RequestId& id) const;
  // REQUIRES for all: known, and not removed.
  std::span<const BlockId> blocks(const RequestId& id) const { return Get(id).table.ids(); }
  std::span<const BlockKey> keys(const RequestId& id) const { return Get(id).task.keys; }
  int64_t ready_tokens(const RequestId& id) const { return Get(id).done; }
  const PrefillCounters& counters(const RequestId& id) const { return Get(id).counters; }

  struct Load {
    int64_t waiting = 0;        // requests of which nothing is planned yet
    int64_t running = 0;        // requests admitted and not complete
    int64_t queued_tokens = 0;  // wanted, not planned yet, not known to be cached, nor in the background
  };
  Load load() const;
  void CheckInvariants() const;

 private:
  struct Request {
    PrefillTask task;
    uint64_t arrival = 0;
    int64_t wanted = 0;        // [0, wanted) is to be there
    int64_t ready_at_add = 0;  // tokens [0, ready_at_add) were in the cache, or staged
    int64_t done = 0;          // [0, done) is written
    int64_t planned = 0;       // [0, planned) will be once the running step is over; = done between steps
    int64_t own_begin = 0;     // what it brings to the running step itself is [own_begin, planned), staged KV first
    int64_t slice_begin = 0;   // the running step's slice is [slice_begin, planned), empty if = planned
    size_t staged_begin = 0, staged_end = 0;   // keys that it holds in staging
    bool looked_again = false;                 // for staged KV, when its turn came
    std::optional<RadixTree::Place> spares{};  // while it waits to begin, and the cache has something of it
    BlockTable table;                          // of [0, planned)
    PrefillCounters counters;
    PrefillCounters counters_before;  // what a failing step restores
    bool admitted = false;
    bool stopped = false;
    bool extended = false;        // so it may hold blocks and wait for more
    bool told = true;             // [0, done) was progress, so its blocks stay; false: open, or was until lately
    int64_t waited_for_open = 0;  // closed: tokens that steps computed since it came for what yields
    uint64_t plan = 0;            // the last one that it had a part in
  };
  struct RunsBefore {
    bool operator()(const Request* a, const Request* b) const;
  };

  // What is left for a step that is being planned.
  struct StepRoom {
    int64_t tokens = 0;
    int64_t open_tokens = 0;                        // of those, for what yields
    int64_t reserved = 0;                           // blocks promised to admitted requests
    absl::btree_map<std::string, int64_t> spent{};  // by tenant, for its turns
  };
  struct StepOrder {
    std::vector<Request*> requests;
    std::vector<Request*> firsts;  // of each tenant
  };

  // It has its share of steps beside others, and what comes whole breaks it off: open, or in the background.
  static bool Yields(const Request& request) { return request.task.open || IsBackground(request.task.priority); }
  const Request& Get(const RequestId& id) const;
  Request& Get(const RequestId& id);
  absl::Status CheckFits(int64_t tokens) const;
  StepOrder OrderStep();
  void AddLine(const std::string& tenant, std::vector<Request*> line, StepOrder& order);
  void NoteTurns(const StepOrder& order, const StepRoom& room);
  bool GivesWayBefore(const Request& a, const Request& b) const;
  bool IsWorthwhile(const Request& request) const;
  bool OpenAreWorthAStep() const;
  int64_t OpenTokens() const;
  void NoteOpen(bool alone);
  static int64_t Outstanding(const Request& request);
  int64_t Reserved() const;
  int64_t Needed(const Request& request) const;
  bool Admit(Request& request, int64_t& reserved);
  void PlanRequests(const std::vector<Request*>& order, absl::FunctionRef<bool(const Request&)> takes_part,
                    StepRoom& room);
  void MakeRoom(const Request& request, int64_t& reserved);
  int64_t Given(const std::vector<Request*>& victims) const;
  void EndLeases(const Request& request, int64_t reserved);
  void GiveBack(Request& request);
  void TellAll(Request& request);
  void Spare(Request& request);  // what it would find in the cache now
  void SpareNoMore(Request& request);
  int64_t Expect(Request& request, int64_t from);
  void ReleaseStaged(Request& request);
  bool WaitsForDisk(Request& request);
  BlockRef Allocate();
  int64_t Advance(Request& request, int64_t budget);
  void TakeUp(Request& request, RadixTree::State state);
  bool BringBack(Request& request);
  void PlanSlice(Request& request, int64_t budget);
  void KeepPromises(Request& request);
  void RollBack(Request& request);
  void ForgetStep(bool ok);
  void SetDone(Request& request, int64_t done);

  BlockPool& pool_;
  RadixTree& tree_;
  const int64_t step_tokens_;
  OpenPromptLimits open_limits_;
  KvLeases leases_;
  SessionLeases session_leases_;
  KvStaging staging_;
  absl::flat_hash_map<RequestId, std::unique_ptr<Request>> requests_;
  std::vector<std::unique_ptr<Request>> removed_;  // while the running step uses their blocks
  std::vector<std::vector<TokenId>> outgrown_;     // while the running step reads them
  std::set<Request*, RunsBefore> active_;          // neither stopped nor planned to the end
  uint64_t arrivals_ = 0;
  uint64_t plans_ = 0;
  TenantTurns turns_;
  absl::flat_hash_set<std::string> oldest_first_;  // tenants whose next turn their oldest request begins
  Batch batch_;
  bool step_of_open_ = false, whole_came_ = false, step_completes_ = false;  // see StepHoldsUp
  int64_t open_in_step_ = 0;                                                 // tokens of open prompts
  std::vector<Request*> step_;  // with planned > done, in the order of planning: a promise before those that share it
  std::vector<Progress> progress_;
  std::vector<RequestId> grown_;
};

}  // namespace baton
