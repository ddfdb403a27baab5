#include <memory>
#include <utility>

#include "base/check.h"
#include "engine/decode/swap.h"
#include "simulator/workers.h"

namespace baton {

SimulatedDecode::SimulatedDecode(WorkerAddress address, Options options, SimulatorCore& core)
    : address_(std::move(address)),
      options_(std::move(options)),
      core_(core),
      process_(address_, core_.queue),
      backend_(options_.model, options_.device, options_.engine.blocks, options_.weights),
      engine_(options_.engine) {}

void SimulatedDecode::Start(DecodeJob job) {
  const RequestId id = job.request_id;
  if (const absl::Status status = engine_.Start(std::move(job), core_.queue.Now()); !status.ok()) {
    options_.send({.updates = {}, .failures = {{id, status, absl::ZeroDuration(), absl::IsResourceExhausted(status)}}});
  }
  Wake();
}

void SimulatedDecode::Cancel(const RequestId& id) {
  engine_.Cancel(id, core_.queue.Now());
  Wake();
}

void SimulatedDecode::Keep(RouterStream router, KeepRoom request) {
  engine_.handoff().Keep(router, std::move(request), core_.queue.Now());
  Wake();
}

// Schedules a step after all messages of this instant, so that the step includes them.
void SimulatedDecode::Wake() {
  ArmTimer();
  if (std::exchange(woken_, true)) return;
  process_.After(absl::ZeroDuration(), [this] {
    woken_ = false;
    if (!stepping_) BeginStep();
  });
}

void SimulatedDecode::BeginStep() {
  DecodeStep* step = engine_.BeginStep(core_.queue.Now());
  SendEvents();
  ArmTimer();
  if (step == nullptr) return;
  stepping_ = true;
  StepRecord record{.worker = address_, .start = core_.queue.Now()};
  record.time = options_.step_time.value_or(backend_.TimeOf(step->batch));
  for (const SequenceSlice& slice : step->batch.slices) {
    record.tokens += std::ssize(slice.tokens);
    record.history += slice.start;
  }
  core_.steps.push_back(record);
  process_.After(record.time, [this, step, took = record.time] { FinishStep(*step, took); });
}

void SimulatedDecode::FinishStep(DecodeStep& step, absl::Duration took) {
  const absl::Status swapped = CopySwaps(step, backend_.slab(), SimulatedBackend::BlockBytes());
  BATON_CHECK(swapped.ok(), "host memory is always copied");
  const LogitsView logits = backend_.Forward(step.batch);
  for (int64_t row = 0; row < step.logit_rows(); ++row) step.Sample(row, logits, scratch_);
  engine_.FinishStep({.took = took});
  stepping_ = false;
  SendEvents();
  Wake();
}

void SimulatedDecode::SendEvents() {
  DecodeEvents events = engine_.TakeEvents();
  if (!events.empty()) options_.send(std::move(events));
}

void SimulatedDecode::ArmTimer() {
  timer_.By(core_.queue, engine_.NextTick(), [this] {
    process_.Run([this] {
      engine_.Tick(core_.queue.Now());
      Wake();
    });
  });
}

}  // namespace baton
