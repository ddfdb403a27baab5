// The output of a pass on the host: the tokens that the device chose, and the logits of the other
// rows.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_sampling.h"
#include "model/logits.h"

namespace baton {

// Two passes may be in flight. `choice` (0 or 1) is the index of a pass's output. A pass may be
// enqueued before the output of the previous pass is fetched, if both return tokens alone. Not
// thread-safe.
class PassOutput {
 public:
  // `has_logits` is false for a rank without logits, whose output is empty.
  PassOutput(int64_t vocab, bool has_logits) : vocab_(vocab), has_logits_(has_logits), sampling_(vocab) {}
  // Creates the events. Called once, before the first Send, with the device current.
  absl::Status Prepare();

  // Returns null if this rank has no logits. CudaSampling::Plan plans the rows of the next pass.
  CudaSampling* sampling() { return has_logits_ ? &sampling_ : nullptr; }
  // Reserves memory for `rows` rows and for the planned pass. If memory grows, the tokens of
  // earlier passes are lost.
  absl::Status Reserve(int64_t rows, cudaStream_t stream);
  // Returns true if memory for `rows` rows is already reserved.
  bool IsReserved(int64_t rows) const { return rows <= sampling_.rows_reserved(); }

  // Enqueues the choice of tokens from `logits`, which is [rows, stride] on the device. Also
  // enqueues the copies of the tokens and of the rows that are not sampled to the host. REQUIRES:
  // the pass is planned, and memory for it is reserved.
  absl::Status Send(float* logits, int64_t stride, cudaStream_t stream);

  // The index, 0 or 1, of the buffer with the last Send's output.
  int choice() const { return sampling_.choice(); }
  // Returns true if the last Send returns tokens alone.
  bool chose_all() const { return has_logits_ && sampling_.any() && sampling_.all(); }
  // Returns true if the device has completed the Send with this number. REQUIRES: it is the last
  // Send, or the previous Send and that Send chose all tokens. CUDA reports `not ready` as an
  // error. CudaStatus clears the error, because otherwise the next launch would report it.
  bool IsOver(int choice) const { return CudaStatus(cudaEventQuery(sent_[choice].get()), "event").ok(); }
  // Waits until the device has completed the Send to that buffer, and returns its output. The view
  // is valid until the next Send or Fetch. An error means that the device has failed.
  absl::StatusOr<LogitsView> Fetch(int choice);

 private:
  absl::Status CopyLogits(const float* logits, int64_t stride, cudaStream_t stream);

  const int64_t vocab_;
  const bool has_logits_;
  CudaSampling sampling_;
  PinnedBuffer<float> host_logits_;  // [rows, vocab]
  // Indexed by choice. Recorded behind each Send.
  CudaEvent sent_[2];
};

}  // namespace baton
