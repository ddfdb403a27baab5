// The decode worker's core: hand-off, scheduling and token streams as one state machine. Messages, step results and the
// time come in; replies, steps, updates and failures go out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/decode/scheduler.h"
#include "engine/decode/stream.h"
#include "engine/handoff/receiver.h"
#include "kv/block_pool.h"
#include "kv/radix_tree.h"
#include "model/batch.h"
#include "model/logits.h"
#include "model/sample_spec.h"
#include "request/answers.h"
#include "request/jobs.h"

namespace baton {

struct DecodeEngineOptions {
  HandoffReceiverOptions handoff;
  DecodeModel model;   // positions: the context of the model; a smaller pool lowers it
  int64_t blocks = 0;  // of the slab
  int32_t max_batch = 64;
  // The prefill module is this very module, so blocks of output serve as prompt blocks of the next turn.
  bool shares_output = false;
};

// What is to be told the router, in this order. Per request, its updates come in order and the last thing is an update
// with `finish` or a failure.
struct DecodeEvents {
  std::vector<TokenUpdate> updates{};
  std::vector<RequestFailed> failures{};
  // For all routers: there is room for so many requests whose reservations were refused with Wait.
  int64_t room = 0;
  bool empty() const { return updates.empty() && failures.empty() && room == 0; }
};

// One step: copies out, copies in, Forward, Sample of each row. No two rows share state, and the engine's methods leave
// alone what a step refers to, so this can happen while messages come in. Sample REQUIRES: TakeEvents was called since
// the last step.
struct DecodeStep {
  struct Row {
    SequenceId sequence;
    DecodeStream* stream = nullptr;                       // null: it ended with the step before, and runs in vain
    std::optional<SampleSpec> sample;                     // what its slice points to; unset: it needs the logits
    absl::StatusOr<bool> ended = absl::UnknownError("");  // not sampled; without words it takes no memory
  };
  std::span<SwapCopy const> out;
  std::span<SwapCopy const> in;
  Batch batch;            // empty if there are copies only
  std::vector<Row> rows;  // of the batch

  void Clear() {  // keeps the memory
    out = {};
    in = {};
    batch.slices.clear();
    batch.begun = false;
    rows.clear();
  }
  // Row i takes the token that was sampled, or chooses one from its logits. `forward`: of the batch.
  void Sample(int64_t i, const LogitsView& forward, SamplerScratch& scratch);
};

// Not thread-safe, except as DecodeStep says.
class DecodeEngine {
 public:
  explicit DecodeEngine(DecodeEngineOptions options);

  // For the prefill workers' messages. Not for Start and Cancel.
  HandoffReceiver& handoff() { return receiver_; }
  const HandoffReceiver& handoff() const { return receiver_; }
  bool verifies() const { return options_.handoff.verify; }

  // Begins to decode what was handed off, or has it checked first (HandoffReceiverOptions::verify), and a request whose
  // blocks are not those that were sent fails with DATA_LOSS. INVALID_ARGUMENT: a field is out of range.
  // FAILED_PRECONDITION: the hand-off is in doubt, or the request runs already. Unless OK, nothing is left of the
  // request.
  absl::Status Start(DecodeJob job, absl::Time now);
  // What came of HandoffReceiver::NextCheck.
  void OnDigests(ReservationId check, const absl::StatusOr<std::vector<BlockDigest>>& digests, absl::Time now);
  // Ends the request wherever it is; a running one gets a last update. Nothing if there is none.
  void Cancel(const RequestId& request, absl::Time now);
  // Fails all that was started. REQUIRES: no step runs.
  void FailAll(const absl::Status& status);
  void Tick(absl::Time now) { receiver_.Tick(now); }
  absl::Time NextTick() const { return receiver_.NextTick(); }

  // Null: nothing can run now. Valid until FinishStep. REQUIRES: no step runs.
  DecodeStep* BeginStep(absl::Time now);
  // Whether BeginNext is likely to give one.
  bool MayBeginNext() const;
  // For Meanwhile::next of the step's Forward: the batch of the next step, which is what BeginStep gives then. Null: it
  // depends on what this one makes. At most once in a step.
  const Batch* BeginNext();
  // `status`: of Forward; where it failed, the batch's requests fail. `next_begun`: what BeginNext gave has begun
  // (LogitsView::next_begun), and `device_waited` for it.
  void FinishStep(const absl::Status& status, bool next_begun, bool device_waited = false);
  // The next BeginStep gives one that has begun.
  bool next_begun() const { return next_begun_; }

  // All that is to be told since the last call. Updates of a step's tokens are made here and not by FinishStep: the
  // next step does not depend on them, so the time for it is when a device computes that.
  DecodeEvents TakeEvents();

  struct Load {
    int64_t running = 0;  // started and not ended, with those that are swapped or wait for a place in the batch
    int64_t batch = 0;    // in the last step
    int64_t swapped = 0;
    int64_t reserved = 0;
    int64_t committed = 0;  // handed off, not started
    BlockPool::Counts blocks;
    double growth_share = 1;  // of max_new_tokens that requests use, as learned
    // Since the start:
    int64_t steps = 0;
    int64_t steps_ahead = 0;  // of these, begun before the one before was over, so that the device did not wait
    int64_t tokens_out = 0;
    int64_t finished = 0;  // with any finish reason
    int64_t failed = 0;
    int64_t preemptions = 0;
    int64_t evictions = 0;
    int64_t expired_leases = 0;
    int64_t failed_checks = 0;
    int64_t refused_writes = 0;
  };
  Load load() const;
  bool idle() const { return requests_.empty() && checking_.empty(); }
  void CheckInvariants() const;

 private:
  struct Request {
    DecodeStream stream;
    absl::Time added;
    absl::Time began = absl::InfiniteFuture();  // of the first step that took it up
    int32_t begun = 0;                          // steps that have it in a row and are not finished
    int64_t row = 0;                            // in the last of them
    bool copied = false;                        // by the running step
    bool cancelled = false;                     // by an event during the step
    Request(DecodeJob job, const DecodeModel& model, uint64_t seed, absl::Time now)
        : stream(std::move(job.request_id), std::move(job.spec), model, seed), added(now) {}
  };
  using Requests = std::map<SequenceId, std::unique_ptr<Request>>;
  using Checking = std::map<ReservationId, std::unique_ptr<Request>>;  // started, and not yet sequences
  struct BegunStep {
    DecodeStep step;
    std::vector<Request*> requests;  // of its rows; null: it ended since
  };

  absl::Status CheckJob(const DecodeJob& job) const;
  Checking::iterator FindChecking(const RequestId& id);
  void Schedule(std::unique_ptr<Request> request, ClaimedKv kv);
  Request& At(const SequenceId& id);
  void Fill(BegunStep& step, const DecodePlan& plan);
  void DropNext();
  void FinishRow(DecodeStep::Row& row, Request& request, const absl::Status& forward);
  void End(const SequenceId& id, Request& request);
  TokenUpdate UpdateOf(Request& request);
  void TellTokens();
  void NameOutputBlock(const SequenceId& id, const Request& request);
  void Emit(TokenUpdate update);
  void Report(const RequestId& id, absl::Status status);
  void Fail(const SequenceId& id, absl::Status status);
  void Forget(const SequenceId& id);

  DecodeEngineOptions options_;
  BlockPool pool_;
  RadixTree tree_;
  DecodeScheduler scheduler_;
  HandoffReceiver receiver_;
  Requests requests_;
  Checking checking_;
  absl::flat_hash_map<RequestId, SequenceId> by_id_;
  BegunStep running_, next_;
  bool next_planned_ = false, next_begun_ = false, next_ahead_ = false;
  bool ended_ = false;  // a request, since the last step was finished: its blocks may be free with the next one
  std::vector<Request*> untold_;  // whose last token has no update yet
  DecodeEvents events_;
  Load totals_;  // only the counts since the start
};

}  // namespace baton
