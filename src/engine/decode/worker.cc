#include "engine/decode/worker.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/logging.h"
#include "base/status.h"
#include "engine/decode/swap.h"

namespace baton {
namespace {

DecodeEngineOptions WithBackend(DecodeEngineOptions options, Backend& backend) {
  options.blocks = static_cast<int64_t>(backend.kv_slab().size()) / backend.kv_layout().BlockBytes();
  options.handoff.layout = backend.kv_layout();
  options.handoff.numerics_id = backend.numerics_id();
  return options;
}

StepForecast::Kind KindOf(const DecodeStep& step) {
  if (!step.scores()) return StepForecast::Kind::kSequences;
  return step.rows.empty() ? StepForecast::Kind::kPrompts : StepForecast::Kind::kBoth;
}

}  // namespace

DecodeWorker::DecodeWorker(DecodeWorkerOptions options, Backend& backend, DecodeListener& listener, const Clock& clock)
    : backend_(backend),
      clock_(clock),
      parallel_for_(std::move(options.parallel_for)),
      scratches_(parallel_for_ ? std::max(1, options.sampling_threads) : 1),
      engine_(WithBackend(std::move(options.engine), backend)),
      delivery_(listener),
      loop_(clock, [this] { return Step(); }) {
  if (engine_.verifies()) checker_.emplace(clock, [this] { return Check(); });
}

bool DecodeWorker::drained() const {
  const HandoffReceiver::Outstanding outstanding = engine_.handoff().outstanding();
  return engine_.idle() && outstanding.reserved == 0 && outstanding.committed == 0;
}

absl::StatusOr<LinkReply> DecodeWorker::OnLink(const LinkRequest& request) {
  const std::lock_guard lock(mutex_);
  return engine_.handoff().OnLink(request, clock_.Now());
}

absl::StatusOr<ReserveReply> DecodeWorker::OnReserve(ReserveRequest request) {
  absl::StatusOr<ReserveReply> reply;
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return Wait{};
    reply = engine_.handoff().OnReserve(std::move(request), clock_.Now());
  }
  loop_.Wake();  // the lease of the reservation may end before the loop would wake
  return reply;
}

absl::Status DecodeWorker::OnCommit(const Commit& commit) {
  {
    const std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(engine_.handoff().OnCommit(commit, clock_.Now()));
  }
  // The commit of a cache-only reservation makes its blocks evictable, or begins their check.
  loop_.Wake();
  if (checker_) checker_->Wake();
  return absl::OkStatus();
}

void DecodeWorker::OnRelease(const Release& release) {
  {
    const std::lock_guard lock(mutex_);
    engine_.handoff().OnRelease(release, clock_.Now());
  }
  loop_.Wake();  // blocks may have become free
}

absl::StatusOr<HeartbeatReply> DecodeWorker::OnHeartbeat(const Heartbeat& heartbeat) {
  const std::lock_guard lock(mutex_);
  return engine_.handoff().OnHeartbeat(heartbeat, clock_.Now());
}

void DecodeWorker::OnProcessEnd(const std::string& process) {
  int64_t freed = 0;
  {
    const std::lock_guard lock(mutex_);
    freed = engine_.handoff().OnProcessEnd(process, clock_.Now());
  }
  spdlog::info("process {} of a prefill worker has ended: {} blocks that it could write are free", process, freed);
  loop_.Wake();
}

absl::Status DecodeWorker::Start(DecodeJob job) {
  {
    const std::lock_guard lock(mutex_);
    if (grace_over_) return absl::UnavailableError("the decode worker was shut down");
    // As OnReserve: such a job has no reservation yet.
    if (closing_ && job.spec.sampling.prompt_logprobs) {
      return absl::ResourceExhaustedError("the decode worker shuts down and takes no new prompts");
    }
    RETURN_IF_ERROR(engine_.Start(std::move(job), clock_.Now()));
  }
  loop_.Wake();
  if (checker_) checker_->Wake();
  return absl::OkStatus();
}

void DecodeWorker::Cancel(const RequestId& request) {
  {
    const std::lock_guard lock(mutex_);
    engine_.Cancel(request, clock_.Now());
  }
  loop_.Wake();
}

void DecodeWorker::Keep(RouterStream router, KeepRoom request) {
  {
    const std::lock_guard lock(mutex_);
    engine_.handoff().Keep(router, std::move(request), clock_.Now());
  }
  loop_.Wake();  // the request may fit now
}

DecodeEngine::Load DecodeWorker::Load() const {
  const std::lock_guard lock(mutex_);
  const absl::Time now = clock_.Now();
  DecodeEngine::Load load = engine_.load(now);
  load.step_time = forecast_.RunningFor(now);
  load.step_forecast = forecast_.forecast();
  return load;
}

void DecodeWorker::Shutdown(absl::Duration grace) {
  {
    std::unique_lock lock(mutex_);
    closing_ = true;
    if (grace > absl::ZeroDuration()) {
      drained_.wait_for(lock, absl::ToChronoNanoseconds(std::min(grace, absl::Hours(24))),
                        [this] { return drained(); });
    }
    grace_over_ = true;
  }
  if (checker_) checker_->Stop();
  loop_.Stop();
  Step();  // ends a step that is enqueued, because it uses blocks that FailAll releases
  DecodeEvents events;
  {
    const std::lock_guard lock(mutex_);
    engine_.FailAll(absl::UnavailableError("the decode worker was shut down"));
    events = engine_.TakeEvents();
  }
  delivery_.Deliver(std::move(events));
  delivery_.Flush();
}

// Runs one step. The events of the step are delivered while the next one runs, so that a device
// does not wait for the delivery.
absl::Time DecodeWorker::Step() {
  DecodeStep* step;
  {
    const std::lock_guard lock(mutex_);
    if (grace_over_ && !engine_.next_started()) return absl::InfiniteFuture();
    engine_.Tick(clock_.Now());
    step = engine_.BeginStep(clock_.Now());
    if (step != nullptr) {
      forecast_.Begin(SwappedBytes(*step, backend_.kv_layout().BlockBytes()), KindOf(*step), clock_.Now());
    }
    if (drained()) drained_.notify_all();
  }
  if (step == nullptr) {
    DeliverEvents();
    const std::lock_guard lock(mutex_);
    return engine_.NextTick();
  }
  DecodeStepResult result = Compute(*step);
  const std::lock_guard lock(mutex_);
  result.took = forecast_.Finish(clock_.Now());
  engine_.FinishStep(result);
  return absl::InfinitePast();
}

void DecodeWorker::DeliverEvents() {
  DecodeEvents events;
  {
    const std::lock_guard lock(mutex_);
    events = engine_.TakeEvents();
    if (closing_) events.room = {};
  }
  delivery_.Deliver(std::move(events));
}

const Batch* DecodeWorker::BeginNext() {
  {
    const std::lock_guard lock(mutex_);
    if (grace_over_ || !engine_.MayBeginNext()) return nullptr;
  }
  clock_.SleepUntil(pace_.PlanAt());
  const std::lock_guard lock(mutex_);
  return grace_over_ ? nullptr : engine_.BeginNext();
}

absl::Time DecodeWorker::Check() {
  std::optional<BlockCheck> check;
  {
    const std::lock_guard lock(mutex_);
    check = engine_.handoff().NextCheck();
  }
  if (!check) return absl::InfiniteFuture();
  const auto digests = DigestsOf(backend_.kv_slab(), backend_.kv_layout(), check->blocks);
  {
    const std::lock_guard lock(mutex_);
    engine_.OnDigests(check->id, digests, clock_.Now());
  }
  loop_.Wake();
  return absl::InfinitePast();
}

DecodeStepResult DecodeWorker::Compute(DecodeStep& step) {
  const bool swaps = !step.out.empty() || !step.in.empty();
  if (swaps) DeliverEvents();  // before copies, which may take long
  const absl::Status swapped = CopySwaps(step, backend_.kv_slab(), backend_.kv_layout().BlockBytes());
  // A copy fails only if the device has failed. The requests cannot go on, because their blocks
  // would have wrong contents.
  BATON_CHECK(swapped.ok(), swapped.ToString());
  if (swaps) {
    const std::lock_guard lock(mutex_);
    forecast_.Copied(clock_.Now());
  }
  if (step.batch.slices.empty()) return {};
  if (!step.batch.started) pace_.Begin(clock_.Now());
  const absl::StatusOr<LogitsView> logits = backend_.Forward(
      step.batch, [](int64_t) { return true; }, {[this] { DeliverEvents(); }, [this] { return BeginNext(); }});
  const bool device_waited = logits.ok() && logits->device_waited;
  pace_.Finish(clock_.Now(), device_waited);
  if (!logits.ok()) return {.status = logits.status()};
  BATON_CHECK(logits->rows == step.logit_rows(), "the backend returned a wrong number of rows");
  BATON_CHECK(logits->sampled.empty() || std::ssize(logits->sampled) == logits->rows,
              "the backend sampled a wrong number of rows");
  Sample(step, *logits);
  return {.next_started = logits->next_started, .device_waited = device_waited};
}

void DecodeWorker::Sample(DecodeStep& step, const LogitsView& logits) {
  const int64_t rows = step.logit_rows();
  const auto parts = std::min<int64_t>(rows, std::ssize(scratches_));
  const auto sample_part = [&](int64_t part) {
    for (int64_t row = part; row < rows; row += parts) {
      step.Sample(row, logits, scratches_[static_cast<size_t>(part)]);
    }
  };
  if (parts > 1) {
    parallel_for_(parts, sample_part);
  } else {
    sample_part(0);
  }
}

}  // namespace baton
