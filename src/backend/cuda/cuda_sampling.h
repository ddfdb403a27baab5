// Chooses tokens on the device where a batch lets it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/upload.h"
#include "kernels/sampling.h"
#include "model/logits.h"
#include "model/sample_spec.h"

namespace baton {

class CudaSampling {
 public:
  explicit CudaSampling(int64_t vocab) : vocab_(static_cast<int32_t>(vocab)) {}

  // Takes up a batch's rows of logits, null: the row is not sampled; adds what Run needs to the upload. The last
  // batch's choice may still be on its way to the host.
  absl::Status Plan(std::span<const SampleSpec* const> specs, UploadBuffer& upload);
  // Memory for so many rows. What was chosen before is lost if it grows.
  absl::Status ReserveRows(int64_t rows, cudaStream_t stream);
  int64_t rows_reserved() const { return rows_reserved_; }
  // Memory for what was planned.
  absl::Status ReserveSeen();
  // Of the device's memory, for so many rows.
  static int64_t BytesOf(int64_t rows);
  bool any() const { return any_; }
  bool all() const { return std::ranges::find(now().sampled, false) == now().sampled.end(); }
  bool IsSampled(int64_t row) const { return now().sampled[static_cast<size_t>(row)]; }

  // With Plan done, memory reserved and the upload sent: row i of `follows` [rows, on the device], if not negative, has
  // for its token what row follows[i] of the last launch chose. That is put into `tokens` [rows], and into what Run
  // needs.
  cudaError_t Follow(const UploadedList<int32_t>& follows, int32_t* tokens, cudaStream_t stream);
  // `logits` [rows, stride] on the device: chooses, and copies the choices to the host when the stream gets there.
  cudaError_t Run(float* logits, int64_t stride, cudaStream_t stream);

  // Names what the last Plan chooses; the one before keeps its name.
  int choice() const { return now_; }
  int64_t rows(int choice) const { return std::ssize(choices_[choice].sampled); }
  // Empty: none of the rows was sampled. REQUIRES: the stream has got there. Valid until the next Tokens.
  std::span<const SampledToken> Tokens(int choice);

 private:
  absl::Status UploadSeen(std::span<const SampleSpec* const> specs, int64_t size, UploadBuffer& upload);

  // What a launch writes: ids, log probabilities and maxima, [rows] each, one after another.
  static constexpr int64_t kResults = 3;

  struct Choice {
    std::vector<bool> sampled;  // [rows]
    PinnedBuffer<int32_t> results;
  };
  const Choice& now() const { return choices_[now_]; }

  const int32_t vocab_;
  bool any_ = false;
  Choice choices_[2];  // the last one, and the one before
  int now_ = 0;
  std::vector<cuda::SamplingRow> rows_;
  UploadedList<cuda::SamplingRow> uploaded_rows_;
  UploadedList<cuda::SeenToken> uploaded_seen_;
  DeviceBuffer<float> seen_logits_;
  DeviceBuffer<std::byte> workspace_;
  DeviceBuffer<int32_t> results_;
  int64_t rows_reserved_ = 0;
  std::vector<SampledToken> tokens_;
};

}  // namespace baton
