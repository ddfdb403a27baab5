#include "backend/cuda/cuda_sampling.h"

#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "base/status.h"

namespace baton {

absl::Status CudaSampling::Plan(std::span<const SampleSpec* const> specs, UploadBuffer& upload, cudaStream_t stream) {
  any_ = false;
  rows_.clear();
  sampled_.assign(specs.size(), false);
  if (vocab_ > cuda::kMaxSampledVocab) return absl::OkStatus();
  int32_t seen = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    const SampleSpec spec = specs[i] != nullptr ? *specs[i] : SampleSpec{.temperature = 0};
    sampled_[i] = specs[i] != nullptr;
    any_ = any_ || sampled_[i];
    rows_.push_back({.temperature = spec.temperature,
                     .top_k = spec.top_k,
                     .top_p = spec.top_p,
                     .min_p = spec.min_p,
                     .repetition_penalty = spec.repetition_penalty,
                     .presence_penalty = spec.presence_penalty,
                     .frequency_penalty = spec.frequency_penalty,
                     .seen_begin = seen,
                     .seen_count = static_cast<int32_t>(spec.seen.size()),
                     .uniform = spec.uniform});
    seen += rows_.back().seen_count;
  }
  if (!any_) return absl::OkStatus();
  RETURN_IF_ERROR(upload.Add(std::span<const cuda::SamplingRow>(rows_), uploaded_rows_));
  RETURN_IF_ERROR(UploadSeen(specs, upload));
  const auto rows = static_cast<int64_t>(rows_.size());
  RETURN_IF_ERROR(results_.Reserve(kResults * rows, "chosen tokens"));
  RETURN_IF_ERROR(host_results_.Reserve(kResults * rows, "chosen tokens"));
  const int64_t bytes = cuda::SamplingWorkspaceBytes(static_cast<int32_t>(rows));
  if (bytes <= workspace_.capacity()) return absl::OkStatus();
  RETURN_IF_ERROR(workspace_.Reserve(bytes, "sampling"));
  return CudaStatus(cudaMemsetAsync(workspace_.data(), 0, static_cast<size_t>(bytes), stream), "sampling");
}

// All of them at each step: with penalties these are most of what a step uploads.
absl::Status CudaSampling::UploadSeen(std::span<const SampleSpec* const> specs, UploadBuffer& upload) {
  static_assert(sizeof(SeenToken) == sizeof(cuda::SeenToken) && std::is_trivially_copyable_v<SeenToken> &&
                offsetof(SeenToken, outputs) == offsetof(cuda::SeenToken, outputs));
  int64_t size = 0;
  for (const cuda::SamplingRow& row : rows_) size += row.seen_count;
  ASSIGN_OR_RETURN(const std::span<cuda::SeenToken> place, upload.Place(size, uploaded_seen_));
  cuda::SeenToken* to = place.data();
  for (const SampleSpec* spec : specs) {
    if (spec == nullptr || spec->seen.empty()) continue;
    std::memcpy(static_cast<void*>(to), spec->seen.data(), spec->seen.size_bytes());
    to += spec->seen.size();
  }
  if (size <= seen_logits_.capacity()) return absl::OkStatus();
  return seen_logits_.Reserve(2 * size, "penalties");  // it grows with each token
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
                                   .workspace = workspace_.data(),
                                   .ids = results_.data(),
                                   .logprobs = reinterpret_cast<float*>(results_.data() + rows),
                                   .maxima = reinterpret_cast<float*>(results_.data() + 2 * rows)};
  const cudaError_t launched = cuda::LaunchSampling(args, stream);
  if (launched != cudaSuccess) return launched;
  return cudaMemcpyAsync(host_results_.data(), results_.data(), kResults * rows_.size() * sizeof(int32_t),
                         cudaMemcpyDeviceToHost, stream);
}

std::span<const SampledToken> CudaSampling::Tokens() {
  tokens_.assign(rows_.size(), {});
  const int32_t* ids = host_results_.data();
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (!sampled_[i]) continue;
    const auto result = [&](size_t kind) { return std::bit_cast<float>(ids[kind * rows_.size() + i]); };
    tokens_[i] = ids[i] >= 0 ? SampledToken{.id = ids[i], .logprob = result(1)}
                             : SampledToken{.id = kNotFinite, .logprob = result(2)};
  }
  return tokens_;
}

}  // namespace baton
