// The choice of tokens on the device, for rows whose slice allows it.
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

// Chooses tokens on the device and copies them to the host. Two choices may be in flight, and
// `choice` (0 or 1) is the index of one. Not thread-safe.
class CudaSampling {
 public:
  explicit CudaSampling(int64_t vocab) : vocab_(static_cast<int32_t>(vocab)) {}

  // Plans the choice for a batch's rows of logits, and adds what Run needs to the upload. A null
  // spec means that the row is not sampled. The copy of the previous choice to the host may still
  // run.
  absl::Status Plan(std::span<const SampleSpec* const> specs, UploadBuffer& upload);
  // Reserves memory for `rows` rows. If memory grows, the tokens of earlier choices are lost.
  absl::Status ReserveRows(int64_t rows, cudaStream_t stream);
  int64_t rows_reserved() const { return rows_reserved_; }
  // Reserves memory for the planned rows' seen tokens and biases.
  absl::Status ReserveShaped();
  // Returns the bytes of device memory for `rows` rows.
  static int64_t BytesOf(int64_t rows);
  // These return true if any, all or a given row of the planned batch is sampled.
  bool any() const { return any_; }
  bool all() const { return std::ranges::find(now().sampled, false) == now().sampled.end(); }
  bool IsSampled(int64_t row) const { return now().sampled[static_cast<size_t>(row)]; }

  // Gives rows the tokens that the previous launch chose. `follows` is [rows] on the device. If
  // follows[i] is not negative, row i gets the token of the previous launch's row follows[i]. The
  // token is written to tokens[i] and to the row's seen tokens. REQUIRES: the batch is planned,
  // memory is reserved and the upload is sent.
  cudaError_t Follow(const UploadedList<int32_t>& follows, int32_t* tokens, cudaStream_t stream);
  // Enqueues the choice from `logits`, which is [rows, stride] on the device, and the copy of the
  // results to the host.
  cudaError_t Run(float* logits, int64_t stride, cudaStream_t stream);

  // The index, 0 or 1, of the result buffer of the last planned step. The step before has the other
  // buffer.
  int choice() const { return now_; }
  int64_t rows(int choice) const { return std::ssize(choices_[choice].sampled); }
  // Returns the tokens of a choice, or an empty span if none of its rows was sampled. The span is
  // valid until the next call of Tokens. REQUIRES: the stream has completed the choice.
  std::span<const SampledToken> Tokens(int choice);

 private:
  absl::Status UploadSeen(std::span<const SampleSpec* const> specs, int64_t size, UploadBuffer& upload);
  absl::Status UploadBiases(std::span<const SampleSpec* const> specs, int64_t size, UploadBuffer& upload);

  // Results of a launch: ids, log probabilities and maxima. Each is [rows], and they lie one after
  // another.
  static constexpr int64_t kResults = 3;

  struct Choice {
    std::vector<bool> sampled;  // [rows]
    PinnedBuffer<int32_t> results;
  };
  const Choice& now() const { return choices_[now_]; }

  const int32_t vocab_;
  bool any_ = false;
  // The present choice and the previous choice.
  Choice choices_[2];
  int now_ = 0;
  std::vector<cuda::SamplingRow> rows_;
  UploadedList<cuda::SamplingRow> uploaded_rows_;
  UploadedList<cuda::SeenToken> uploaded_seen_;
  UploadedList<TokenBias> uploaded_biases_;
  DeviceBuffer<float> seen_logits_, bias_logits_;
  DeviceBuffer<std::byte> workspace_;
  DeviceBuffer<int32_t> results_;
  int64_t rows_reserved_ = 0;
  std::vector<SampledToken> tokens_;
};

}  // namespace baton
