#include "backend/cuda/cuda_sampling.h"

#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "base/status.h"

namespace baton {

absl::Status CudaSampling::Plan(std::span<const SampleSpec* const> specs, UploadBuffer& upload) {
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
    if (!spec.seen.empty()) seen += rows_.back().seen_count + 1;  // room for the token that may follow
  }
  if (!any_) return absl::OkStatus();
  RETURN_IF_ERROR(upload.Add(std::span<const cuda::SamplingRow>(rows_), uploaded_rows_));
  return UploadSeen(specs, seen, upload);
}

absl::Status CudaSampling::Reserve(cudaStream_t stream) {
  if (!any_) return absl::OkStatus();
  const int64_t seen = uploaded_seen_.size();
  if (seen > seen_logits_.capacity()) RETURN_IF_ERROR(seen_logits_.Reserve(2 * seen, "penalties"));  // they grow
  const auto rows = static_cast<int64_t>(rows_.size());
  RETURN_IF_ERROR(results_.Reserve(kResults * rows, "chosen tokens"));
  RETURN_IF_ERROR(host_results_.Reserve(kResults * rows, "chosen tokens"));
  const int64_t bytes = cuda::SamplingWorkspaceBytes(static_cast<int32_t>(rows));
  if (bytes <= workspace_.capacity()) return absl::OkStatus();
  RETURN_IF_ERROR(workspace_.Reserve(bytes, "sampling"));
  return CudaStatus(cudaMemsetAsync(workspace_.data(), 0, static_cast<size_t>(bytes), stream), "sampling");
}

// All of them are uploaded at each step: with penalties these are most of it.
absl::Status CudaSampling::UploadSeen(std::span<const SampleSpec* const> specs, int64_t size, UploadBuffer& upload) {
  static_assert(sizeof(SeenToken) == sizeof(cuda::SeenToken) && std::is_trivially_copyable_v<SeenToken> &&
                offsetof(SeenToken, outputs) == offsetof(cuda::SeenToken, outputs));
  ASSIGN_OR_RETURN(const std::span<cuda::SeenToken> place, upload.Place(size, uploaded_seen_));
  for (size_t i = 0; i < specs.size(); ++i) {
    if (rows_[i].seen_count == 0) continue;
    std::memcpy(static_cast<void*>(&place[static_cast<size_t>(rows_[i].seen_begin)]), specs[i]->seen.data(),
                specs[i]->seen.size_bytes());
  }
  return absl::OkStatus();
}

void CudaSampling::Follow(std::span<const SampleSpec* const> specs, const UploadBuffer& upload) {
  if (!any_) return;
  const std::span<cuda::SamplingRow> rows = upload.OnHost(uploaded_rows_);
  const std::span<cuda::SeenToken> seen = upload.OnHost(uploaded_seen_);
  for (size_t i = 0; i < specs.size(); ++i) {
    BATON_CHECK((specs[i] != nullptr) == sampled_[i], "a row is sampled, or is not, as it was foreseen");
    if (specs[i] == nullptr) continue;
    const SampleSpec& spec = *specs[i];
    cuda::SamplingRow& row = rows_[i];
    row.uniform = spec.uniform;
    if (row.seen_count > 0) {
      const auto count = static_cast<int32_t>(spec.seen.size());
      BATON_CHECK(count == row.seen_count || count == row.seen_count + 1, "a token follows another");
      BATON_CHECK(spec.latest >= 0 && spec.latest < count, "the last token is one of those seen");
      const SeenToken& latest = spec.seen[static_cast<size_t>(spec.latest)];
      seen[static_cast<size_t>(row.seen_begin + spec.latest)] = {latest.id, latest.outputs};
      row.seen_count = count;
    }
    rows[i] = row;
  }
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
