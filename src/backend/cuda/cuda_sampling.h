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

  // Takes up a batch's rows of logits, null: the row is not sampled; adds what Run needs to the upload. The last batch
  // may still run, if the same of its rows were sampled.
  absl::Status Plan(std::span<const SampleSpec* const> specs, UploadBuffer& upload);
  // Plan was told of the step before: changes what that one's tokens have changed. REQUIRES: the upload is not sent
  // yet.
  void Follow(std::span<const SampleSpec* const> specs, const UploadBuffer& upload);
  // Memory for what was planned. REQUIRES: the last batch's launch is over.
  absl::Status Reserve(cudaStream_t stream);
  bool any() const { return any_; }
  bool all() const { return std::find(sampled_.begin(), sampled_.end(), false) == sampled_.end(); }
  bool IsSampled(int64_t row) const { return sampled_[static_cast<size_t>(row)]; }

  // `logits` [rows, stride] on the device: chooses, and copies the choices to the host when the stream gets there.
  cudaError_t Run(float* logits, int64_t stride, cudaStream_t stream);
  // REQUIRES: the stream has got there. Valid until the next Plan.
  std::span<const SampledToken> Tokens();

 private:
  absl::Status UploadSeen(std::span<const SampleSpec* const> specs, int64_t size, UploadBuffer& upload);

  // What a launch writes: ids, log probabilities and maxima, [rows] each, one after another.
  static constexpr int64_t kResults = 3;

  const int32_t vocab_;
  bool any_ = false;
  std::vector<bool> sampled_;  // [rows]
  std::vector<cuda::SamplingRow> rows_;
  UploadedList<cuda::SamplingRow> uploaded_rows_;
  UploadedList<cuda::SeenToken> uploaded_seen_;
  DeviceBuffer<float> seen_logits_;
  DeviceBuffer<std::byte> workspace_;
  DeviceBuffer<int32_t> results_;
  PinnedBuffer<int32_t> host_results_;
  std::vector<SampledToken> tokens_;
};

}  // namespace baton
