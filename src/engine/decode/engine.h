// The core of a decode worker: hand-off, scheduling and token streams in one state machine.
// Messages, results of steps and the time come in. Replies, steps, updates and failures go out.
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
#include "engine/decode/prompt_scorer.h"
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
  // `model.positions` is the model's context length. The engine lowers it if the pool is smaller.
  DecodeModel model;
  int64_t blocks = 0;  // of the slab
  int32_t max_batch = 64;
  ScoringLimits scoring;
  // True if the decode module is the prefill module. Blocks of output then get block keys, so a
  // prompt of the next turn can share them. Only such a worker computes log probabilities of
  // prompts.
  bool shares_output = false;
};

// Events for the routers, to be reported in the order of the fields. The updates of one request are
// in order. The last event of a request is an update with `finish`, or a failure.
struct DecodeEvents {
  std::vector<TokenUpdate> updates{};
  std::vector<RequestFailed> failures{};
  RoomReport room{};  // for all routers (HandoffReceiver::TakeRoom)
  bool empty() const { return updates.empty() && failures.empty() && room.empty(); }
};

// One step. The caller runs the copies out, the copies in, Forward of the batch, and Sample of each
// row, in this order. Methods of the engine do not change the objects that a step refers to, so the
// step may run while messages arrive. Rows share no state, so several threads may sample different
// rows.
struct DecodeStep {
  struct Row {
    SequenceId sequence;
    // Null: the request finished in the previous step; its row is discarded.
    DecodeStream* stream = nullptr;
    // The target of the slice's `sample`. Unset if the row needs the logits.
    std::optional<SampleSpec> sample;
    // The result of DecodeStream::Advance. Until Sample, an error without a text, which allocates
    // no memory.
    absl::StatusOr<bool> ended = absl::UnknownError("");
  };
  std::span<SwapCopy const> out;
  std::span<SwapCopy const> in;
  Batch batch;            // empty if there are copies only
  std::vector<Row> rows;  // of the batch's first slices, one for each
  // The rows of logits of the other slices, which are chunks of prompts.
  std::span<PromptScorer::Row> prompt_rows;

  void Clear() {  // keeps the memory
    out = {};
    in = {};
    batch.slices.clear();
    batch.started = false;
    rows.clear();
    prompt_rows = {};
  }
  // Whether the step computes chunks of prompts.
  bool scores() const { return batch.slices.size() > rows.size(); }
  // The rows of logits that Forward returns.
  int64_t logit_rows() const { return std::ssize(rows) + std::ssize(prompt_rows); }
  // Gives row i of logits its next token, or takes the log probabilities of a prompt's token. The
  // next token is the one that the backend sampled, or else one that the row's sampler chooses from
  // the logits. `forward` is the result of Forward for the batch. REQUIRES: i < logit_rows().
  // TakeEvents was called after the previous step's FinishStep.
  void Sample(int64_t i, const LogitsView& forward, SamplerScratch& scratch);
};

// How a step ended.
struct DecodeStepResult {
  absl::Status status{};       // of Forward; an error fails the requests of the batch
  bool next_started = false;   // as in LogitsView
  bool device_waited = false;  // as in LogitsView
  absl::Duration took{};       // the time of the step after its copies
};

// Runs the requests of a decode worker. A request is started, perhaps checked, and scheduled as a
// sequence until it ends. The prompt of a request with prompt_logprobs is computed here before.
//
// Not thread-safe. Only a DecodeStep may run while methods of the engine are called.
class DecodeEngine {
 public:
  explicit DecodeEngine(DecodeEngineOptions options);

  // The receiver of the prefill workers' messages. For Start and Cancel, callers must use the
  // engine's methods.
  HandoffReceiver& handoff() { return receiver_; }
  const HandoffReceiver& handoff() const { return receiver_; }
  bool verifies() const { return options_.handoff.verify; }

  // Claims the KV of a hand-off and starts to decode the request. If HandoffReceiverOptions::verify
  // is set, the blocks are checked before. A request whose blocks are not the bytes that were sent
  // then fails with DATA_LOSS. A job with prompt_logprobs has no hand-off: its prompt is computed
  // first, in blocks that are not shared. Errors:
  // - INVALID_ARGUMENT: a field is out of range. Or the job wants log probabilities of a prompt
  //   that can never fit.
  // - UNIMPLEMENTED: the job wants log probabilities of a prompt, but another module prefills the
  //   prompts of this decoder.
  // - RESOURCE_EXHAUSTED: there is no room now for the prompt of a job with prompt_logprobs.
  // - FAILED_PRECONDITION: HandoffReceiver::Start refuses, or the request is already being decoded.
  //
  // After an error the hand-off is given up. A request that was already being decoded continues.
  absl::Status Start(DecodeJob job, absl::Time now);
  // Takes the digests that a check of HandoffReceiver::NextCheck asked for.
  void OnDigests(ReservationId check, const absl::StatusOr<std::vector<BlockDigest>>& digests, absl::Time now);
  // Ends the request at any stage. A request in the running step ends with that step. A started
  // request gets a last update. Does nothing if the request is unknown.
  void Cancel(const RequestId& request, absl::Time now);
  // Fails all started requests. REQUIRES: no step is running.
  void FailAll(const absl::Status& status);
  void Tick(absl::Time now) { receiver_.Tick(now); }
  absl::Time NextTick() const { return receiver_.NextTick(); }

  // Begins a step. Returns null if nothing can run now. The step is valid until FinishStep.
  // REQUIRES: no step is running.
  DecodeStep* BeginStep(absl::Time now);
  // Returns false only if BeginNext would return null. If true, BeginNext is likely to plan a step.
  bool MayBeginNext() const;
  // For Meanwhile::next of the running step's Forward. Plans the next step and returns its batch.
  // If the backend enqueues the batch, the next BeginStep returns this step. Returns null if the
  // next step cannot be planned before the running step ends. REQUIRES: called at most once in a
  // step.
  const Batch* BeginNext();
  // Ends the running step.
  void FinishStep(const DecodeStepResult& result);
  // Returns true if the next BeginStep returns a step that the backend has already enqueued.
  bool next_started() const { return next_started_; }

  // Returns the events since the last call. Makes the updates of the last step's tokens. FinishStep
  // does not make them, because the next step does not depend on them. A caller therefore calls
  // this while a device computes the next step.
  DecodeEvents TakeEvents();

  struct Load {
    // Sequences that have not ended, including those that are swapped out or not in the batch.
    int64_t running = 0;
    int64_t batch = 0;    // sequences in the last step
    int64_t swapped = 0;  // part of `running`: swapped out
    int64_t scoring = 0;  // part of `running`: their prompts are computed for log probabilities
    int64_t reserved = 0;
    int64_t committed = 0;  // handed off and not started, or being checked
    BlockPool::Counts blocks;
    // Set by DecodeWorker: StepForecast::RunningFor, and the forecast.
    absl::Duration step_time{}, step_forecast{};
    // For how long the request that was started first waits for its first step.
    absl::Duration longest_wait{};
    bool keeps_room = false;  // for a request that has waited long (KeptRoom)
    // The remaining fields count since the start.
    int64_t steps = 0;
    // Part of `steps`: enqueued before the previous step was over, so that the device did not wait.
    int64_t steps_ahead = 0;
    int64_t tokens_out = 0;
    int64_t scored_tokens = 0;  // tokens of prompts that were computed for log probabilities
    int64_t finished = 0;       // with any finish reason
    int64_t failed = 0;
    int64_t preemptions = 0;
    int64_t evictions = 0;
    int64_t freed_by_process_end = 0;
    int64_t expired_leases = 0;
    int64_t failed_checks = 0;
    int64_t refused_writes = 0;
  };
  // `now`: for the times of the load. Without it, these times are zero.
  Load load(absl::Time now = absl::InfinitePast()) const;
  bool idle() const { return requests_.empty() && checking_.empty() && scoring_.empty(); }
  void CheckInvariants() const;

 private:
  struct Request {
    DecodeStream stream;
    absl::Time added;
    bool began = false;           // its first step began
    int32_t steps_in_flight = 0;  // unfinished steps that have a row for it
    int64_t row = 0;              // its row in the last of these steps
    bool copied = false;          // the running step swaps it out or in
    bool cancelled = false;       // by an event during the step
    Request(DecodeJob job, const DecodeModel& model, uint64_t seed, absl::Time now)
        : stream(std::move(job.request_id), std::move(job.spec), model, seed), added(now) {}
  };
  using Requests = std::map<SequenceId, std::unique_ptr<Request>>;
  // Started requests whose prompts are being computed for log probabilities.
  using Scoring = std::map<SequenceId, std::unique_ptr<Request>>;
  // Started requests whose blocks are being checked.
  using Checking = std::map<ReservationId, std::unique_ptr<Request>>;
  struct PlannedStep {
    DecodeStep step;
    std::vector<Request*> requests;  // one for each row; null: the request has ended since
  };

  absl::Status CheckJob(const DecodeJob& job) const;
  Checking::iterator FindChecking(const RequestId& id);
  Scoring::iterator FindScoring(const RequestId& id);
  HandoffReceiver::Outstanding Outstanding() const;
  absl::Status StartScoring(DecodeJob job, absl::Time now);
  void Scored(std::unique_ptr<Request> request, BlockTable blocks, PromptLogprobs prompt);
  bool CancelScoring(const RequestId& id);
  void Schedule(std::unique_ptr<Request> request, ClaimedKv kv);
  Request& At(const SequenceId& id);
  void Fill(PlannedStep& step, const DecodePlan& plan);
  void FillPrompts(DecodeStep& step, PromptScorer::Plan& plan);
  void Began(Request& request, absl::Time now);
  void DropNext();
  void FinishRow(DecodeStep::Row& row, Request& request, const absl::Status& forward);
  void FinishPrompts(const DecodeStepResult& result);
  void End(const SequenceId& id, Request& request);
  void MakeUpdates();
  void SetOutputBlockKey(const SequenceId& id, const Request& request);
  void Emit(TokenUpdate update);
  void Report(const RequestId& id, absl::Status status);
  void Fail(const SequenceId& id, absl::Status status);
  void Forget(const SequenceId& id);

  DecodeEngineOptions options_;
  BlockPool pool_;
  RadixTree tree_;
  DecodeScheduler scheduler_;
  PromptScorer scorer_;
  HandoffReceiver receiver_;
  Requests requests_;
  Scoring scoring_;
  Checking checking_;
  absl::flat_hash_map<RequestId, SequenceId> by_id_;
  PlannedStep running_, next_;
  bool next_planned_ = false, next_started_ = false, next_ahead_ = false;
  // A request has ended since the last FinishStep. The next FinishStep may free its blocks.
  bool ended_ = false;
  std::vector<Request*> without_update_;  // requests whose last token has no update yet
  DecodeEvents events_;
  Load totals_;  // only the counts since the start
};

}  // namespace baton
