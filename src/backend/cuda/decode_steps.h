// Decode steps of a model on one stream. The next step may be enqueued behind the running step.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/decode_graphs.h"
#include "base/log_limit.h"
#include "model/forward.h"

namespace baton {

// A decode step has one new token for each sequence, and each wants logits. Steps are padded to a
// few sizes (DecodeGraphs::RowsFor), so that steps of similar size share a captured graph. Not
// thread-safe.
class DecodeSteps {
 public:
  // The ops, the model and the stream must outlive the DecodeSteps. `captures` is false in a
  // tensor-parallel group. A graph cannot contain the work on other ranks' streams, so a group's
  // steps are not captured and none is enqueued ahead.
  DecodeSteps(CudaOps& ops, const PackedModel& model, bool captures, cudaStream_t stream)
      : ops_(ops), model_(model), captures_(captures), stream_(stream) {}

  // Runs the step, or waits for it if it is already enqueued. Enqueues the next step behind it if
  // possible (Meanwhile::next).
  absl::StatusOr<LogitsView> Run(const Batch& batch, const Meanwhile& meanwhile);

  // Returns true if a step is enqueued behind the step whose output Run returned last. The next Run
  // must be for that step.
  bool has_started() const { return started_.has_value(); }
  // Discards the output of the step that is enqueued. The caller must wait for the stream.
  void DropStarted() { started_.reset(); }

 private:
  // A step that is enqueued.
  struct Started {
    int64_t slices = 0;
    int choice = 0;  // its index in PassOutput
  };

  absl::StatusOr<Started> Begin(const Batch& batch);
  void BeginNext(const Meanwhile& meanwhile, int64_t slices);

  CudaOps& ops_;
  const PackedModel& model_;
  const bool captures_;
  const cudaStream_t stream_;
  DecodeGraphs graphs_;
  std::optional<Started> started_;
  LogLimit log_limit_;
};

}  // namespace baton
