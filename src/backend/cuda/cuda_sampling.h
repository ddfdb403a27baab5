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

  // Takes up a batch's rows of logits, null: the row is not sampled; adds what Run needs to the upload. What the last
  // batch chose is still to be had, as is its launch, where Reserve does not come.
  absl::Status Plan(std::span<const SampleSpec* const> specs, UploadBuffer& upload);
  // Memory for what was planned; what the last launch chose stays on the device.
  absl::Status Reserve(cudaStream_t stream);
  bool any() const { return any_; }
  bool all() const { return std::ranges::find(now().sampled, false) == now().sampled.end(); }
  bool IsSampled(int64_t row) const { return now().sampled[static_cast<size_t>(row)]; }

  // With Plan and Reserve done and the upload sent: row i of `follows` [rows, on the device], if not negative, has for
  // its token what row follows[i] of the last launch chose. That is put into `tokens` [rows], and into what Run needs.
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
  absl::Status ReserveResults(int64_t size, cudaStream_t stream);

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
  std::vector<SampledToken> tokens_;
};

}  // namespace baton
