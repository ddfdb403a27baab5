#include "backend/cuda/cuda_sampling.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "base/status.h"
#include "kernels/chosen_tokens.h"

namespace baton {

absl::Status CudaSampling::Plan(std::span<const SampleSpec* const> specs, UploadBuffer& upload) {
  any_ = false;
  rows_.clear();
  now_ ^= 1;
  std::vector<bool>& sampled = choices_[now_].sampled;
  sampled.assign(specs.size(), false);
  if (vocab_ > cuda::kMaxSampledVocab) return absl::OkStatus();
  int32_t seen = 0, biases = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    const SampleSpec spec = specs[i] != nullptr ? *specs[i] : SampleSpec{.draw = {.temperature = 0}};
    sampled[i] = specs[i] != nullptr;
    any_ = any_ || sampled[i];
    rows_.push_back({.draw = spec.draw,
                     .seen_begin = seen,
                     .seen_count = static_cast<int32_t>(spec.seen.size()),
                     .bias_begin = biases,
                     .bias_count = static_cast<int32_t>(spec.biases.size()),
                     .only_biased = spec.only_biased,
                     .uniform = spec.uniform});
    // Includes space for the token that the previous step may add.
    if (!spec.seen.empty()) seen += rows_.back().seen_count + 1;
    biases += rows_.back().bias_count;
  }
  if (!any_) return absl::OkStatus();
  RETURN_IF_ERROR(upload.Add(std::span<const cuda::SamplingRow>(rows_), uploaded_rows_));
  RETURN_IF_ERROR(UploadSeen(specs, seen, upload));
  return UploadBiases(specs, biases, upload);
}

absl::Status CudaSampling::ReserveRows(int64_t rows, cudaStream_t stream) {
  if (rows <= rows_reserved_ || vocab_ > cuda::kMaxSampledVocab) return absl::OkStatus();
  // Stays 0 if an allocation below fails.
  rows_reserved_ = 0;
  RETURN_IF_ERROR(results_.Reserve(kResults * rows, "chosen tokens"));
  for (Choice& choice : choices_) RETURN_IF_ERROR(choice.results.Reserve(kResults * rows, "chosen tokens"));
  RETURN_IF_ERROR(
      workspace_.ReserveZeroed(cuda::SamplingWorkspaceBytes(static_cast<int32_t>(rows)), "sampling", stream));
  rows_reserved_ = rows;
  return absl::OkStatus();
}

int64_t CudaSampling::BytesOf(int64_t rows) {
  return kResults * rows * int64_t{sizeof(int32_t)} + cuda::SamplingWorkspaceBytes(static_cast<int32_t>(rows));
}

absl::Status CudaSampling::ReserveShaped() {
  if (!any_) return absl::OkStatus();
  const int64_t seen = uploaded_seen_.size(), biases = uploaded_biases_.size();
  // Twice the need, because the seen tokens grow with each step.
  if (seen > seen_logits_.capacity()) RETURN_IF_ERROR(seen_logits_.Reserve(2 * seen, "penalties"));
  return biases <= bias_logits_.capacity() ? absl::OkStatus() : bias_logits_.Reserve(2 * biases, "biases");
}

// Copies the tokens directly into the upload. All of them are uploaded at each step. With penalties
// they are most of the upload.
absl::Status CudaSampling::UploadSeen(std::span<const SampleSpec* const> specs, int64_t size, UploadBuffer& upload) {
  static_assert(sizeof(SeenToken) == sizeof(cuda::SeenToken) && std::is_trivially_copyable_v<SeenToken> &&
                offsetof(SeenToken, outputs) == offsetof(cuda::SeenToken, outputs));
  ASSIGN_OR_RETURN(const std::span<cuda::SeenToken> space, upload.Reserve(size, uploaded_seen_));
  for (size_t i = 0; i < specs.size(); ++i) {
    if (rows_[i].seen_count == 0) continue;
    std::memcpy(static_cast<void*>(&space[static_cast<size_t>(rows_[i].seen_begin)]), specs[i]->seen.data(),
                specs[i]->seen.size_bytes());
  }
  return absl::OkStatus();
}

absl::Status CudaSampling::UploadBiases(std::span<const SampleSpec* const> specs, int64_t size, UploadBuffer& upload) {
  ASSIGN_OR_RETURN(const std::span<TokenBias> space, upload.Reserve(size, uploaded_biases_));
  for (size_t i = 0; i < specs.size(); ++i) {
    if (rows_[i].bias_count > 0) std::ranges::copy(specs[i]->biases, space.begin() + rows_[i].bias_begin);
  }
  return absl::OkStatus();
}

cudaError_t CudaSampling::Follow(const UploadedList<int32_t>& follows, int32_t* tokens, cudaStream_t stream) {
  cuda::ChosenTokensArgs args = {.chosen = results_.data(),
                                 .follows = follows.data(),
                                 .rows = static_cast<int32_t>(follows.size()),
                                 .tokens = tokens};
  if (any_) {
    args.params = uploaded_rows_.data();
    args.seen = uploaded_seen_.data();
  }
  return cuda::LaunchChosenTokens(args, stream);
}

cudaError_t CudaSampling::Run(float* logits, int64_t stride, cudaStream_t stream) {
  const auto rows = static_cast<int32_t>(rows_.size());
  const cuda::SamplingArgs args = {.logits = logits,
                                   .stride = stride,
                                   .rows = rows,
                                   .vocab = vocab_,
                                   .params = uploaded_rows_.data(),
                                   .seen = uploaded_seen_.data(),
                                   .seen_logits = seen_logits_.data(),
                                   .biases = uploaded_biases_.data(),
                                   .bias_logits = bias_logits_.data(),
                                   .workspace = workspace_.data(),
                                   .ids = results_.data(),
                                   .logprobs = reinterpret_cast<float*>(results_.data() + rows),
                                   .maxima = reinterpret_cast<float*>(results_.data() + 2 * rows)};
  const cudaError_t launched = cuda::LaunchSampling(args, stream);
  if (launched != cudaSuccess) return launched;
  return cudaMemcpyAsync(choices_[now_].results.data(), results_.data(), kResults * rows_.size() * sizeof(int32_t),
                         cudaMemcpyDeviceToHost, stream);
}

std::span<const SampledToken> CudaSampling::Tokens(int choice) {
  const Choice& chosen = choices_[choice];
  const size_t rows = chosen.sampled.size();
  if (std::ranges::find(chosen.sampled, true) == chosen.sampled.end()) return {};
  tokens_.assign(rows, {});
  const int32_t* ids = chosen.results.data();
  for (size_t i = 0; i < rows; ++i) {
    if (!chosen.sampled[i]) continue;
    const auto result = [&](size_t kind) { return std::bit_cast<float>(ids[kind * rows + i]); };
    if (ids[i] >= 0) {
      tokens_[i] = {.id = ids[i], .logprob = result(1)};
    } else if (ids[i] == cuda::kAllExcluded) {
      tokens_[i] = {.id = kNothingAllowed};
    } else {
      tokens_[i] = {.id = kNotFinite, .logprob = result(2)};
    }
  }
  return tokens_;
}

}  // namespace baton
