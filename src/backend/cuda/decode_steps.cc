#include "backend/cuda/decode_steps.h"

#include <utility>

#include "base/check.h"
#include "base/logging.h"
#include "base/status.h"

namespace baton {
namespace {

// The operations of a decode step whose batch is already on the device. They only enqueue work, so
// the step can be captured.
class DecodeStepOps final : public Ops {
 public:
  explicit DecodeStepOps(CudaOps& ops) : ops_(ops) {}

  absl::StatusOr<WeightId> Pack(const WeightSource& source) override { return ops_.Pack(source); }
  absl::Status Begin(const Batch&) override {
    ops_.ClearError();
    return absl::OkStatus();
  }
  void Embed(WeightId table) override { ops_.Embed(table); }
  void Linear(const LinearStep& step) override { ops_.Linear(step); }
  void StoreKv(int64_t layer, const std::optional<QkNorm>& norm) override { ops_.StoreKv(layer, norm); }
  void Attend(int64_t layer) override { ops_.Attend(layer); }
  void KeepLogitRows() override {}  // all rows want logits
  absl::StatusOr<LogitsView> Logits(WeightId norm, WeightId head) override {
    ops_.ComputeLogits(norm, head);
    return LogitsView{};
  }

 private:
  CudaOps& ops_;
};

}  // namespace

absl::StatusOr<LogitsView> DecodeSteps::Run(const Batch& batch, const Meanwhile& meanwhile) {
  const absl::StatusOr<Started> step = started_ ? *std::exchange(started_, std::nullopt) : Begin(batch);
  RETURN_IF_ERROR(step.status());
  BATON_CHECK(step->slices == std::ssize(batch.slices), "the batch is not the step that is enqueued ahead");
  meanwhile.work();
  const PassOutput& output = ops_.output();
  if (captures_ && output.chose_all()) BeginNext(meanwhile, step->slices);
  const bool device_waited = started_ && output.IsOver(step->choice);
  absl::StatusOr<LogitsView> logits = ops_.output().Fetch(step->choice);
  if (!logits.ok()) {
    started_.reset();
    return logits;
  }
  logits->next_started = started_.has_value();
  logits->device_waited = device_waited;
  return logits;
}

// Enqueues the next step behind a running step of `slices` slices. If it cannot be enqueued now,
// the caller runs it later as a separate step.
void DecodeSteps::BeginNext(const Meanwhile& meanwhile, int64_t slices) {
  const Batch* next = meanwhile.next();
  // If memory grew, the running step's tokens would be lost.
  if (next == nullptr || !ops_.output().IsReserved(DecodeGraphs::RowsFor(std::ssize(next->slices)))) return;
  for (const SequenceSlice& slice : next->slices)
    BATON_CHECK(slice.follows < slices, "a slice follows a slice that the previous step does not have");
  const absl::StatusOr<Started> started = Begin(*next);
  if (started.ok()) {
    started_ = *started;
  } else if (log_limit_.Pass()) {
    spdlog::warn("cannot enqueue the next decode step ahead: {}", started.status().ToString());
  }
}

absl::StatusOr<DecodeSteps::Started> DecodeSteps::Begin(const Batch& batch) {
  RETURN_IF_ERROR(ops_.BeginDecode(batch, DecodeGraphs::RowsFor(std::ssize(batch.slices))));
  DecodeStepOps step_ops(ops_);
  const auto forward = [&]() -> absl::Status {
    RETURN_IF_ERROR(baton::Forward(model_, batch, step_ops, [](int64_t) { return true; }).status());
    return ops_.status();
  };
  RETURN_IF_ERROR(captures_ ? graphs_.Run(ops_.Describe(), forward, stream_) : forward());
  RETURN_IF_ERROR(ops_.Choose());
  return Started{.slices = std::ssize(batch.slices), .choice = ops_.output().choice()};
}

}  // namespace baton
