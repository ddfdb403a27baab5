// What a pass returns to the host: the tokens that the device chose, and the logits of the other
// rows.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_sampling.h"
#include "model/logits.h"

namespace baton {

// Two passes may be in flight: the number `choice` names the output of each. The later of two
// passes whose output is tokens alone may be enqueued before the output of the earlier one is
// fetched.
class PassOutput {
 public:
  // `has_logits` is false for a rank without logits, whose output is empty.
  PassOutput(int64_t vocab, bool has_logits) : vocab_(vocab), has_logits_(has_logits), sampling_(vocab) {}
  absl::Status Prepare();

  // Null: this rank has no logits. CudaSampling::Plan plans the rows of the next pass.
  CudaSampling* sampling() { return has_logits_ ? &sampling_ : nullptr; }
  // Reserves memory for `rows` rows and for the planned pass. Tokens that were chosen before are
  // lost if it grows.
  absl::Status Reserve(int64_t rows, cudaStream_t stream);
  bool IsReserved(int64_t rows) const { return rows <= sampling_.rows_reserved(); }

  // Enqueues: chooses tokens from `logits` [rows, stride] on the device, and copies them and the
  // rows that are not sampled to the host. REQUIRES: the pass is planned, and memory for it is
  // reserved.
  absl::Status Send(float* logits, int64_t stride, cudaStream_t stream);

  // Of the last Send: its name, and whether it returns tokens alone.
  int choice() const { return sampling_.choice(); }
  bool chose_all() const { return has_logits_ && sampling_.any() && sampling_.all(); }
  // Whether the device has passed that Send: the last one, or the one before if it chose all. CUDA
  // calls `not ready` an error; CudaStatus clears it, or the next launch would report it.
  bool IsOver(int choice) const { return CudaStatus(cudaEventQuery(sent_[choice].get()), "event").ok(); }
  // Waits for that Send. An error is the device's. The view is valid until the next Send or Fetch.
  absl::StatusOr<LogitsView> Fetch(int choice);

 private:
  absl::Status CopyLogits(const float* logits, int64_t stride, cudaStream_t stream);

  const int64_t vocab_;
  const bool has_logits_;
  CudaSampling sampling_;
  PinnedBuffer<float> host_logits_;  // [rows, vocab]
  CudaEvent sent_[2];                // by choice
};

}  // namespace baton
