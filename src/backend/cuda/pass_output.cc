#include "backend/cuda/pass_output.h"

#include "base/status.h"

namespace baton {

absl::Status PassOutput::Prepare() {
  for (CudaEvent& sent : sent_) {
    ASSIGN_OR_RETURN(sent, MakeEvent());
  }
  return absl::OkStatus();
}

absl::Status PassOutput::Reserve(int64_t rows, cudaStream_t stream) {
  if (!has_logits_) return absl::OkStatus();
  RETURN_IF_ERROR(sampling_.ReserveRows(rows, stream));
  return sampling_.all() ? absl::OkStatus() : host_logits_.Reserve(rows * vocab_, "logits");
}

absl::Status PassOutput::Send(float* logits, int64_t stride, cudaStream_t stream) {
  if (!has_logits_) return absl::OkStatus();
  if (sampling_.any()) RETURN_IF_ERROR(CudaStatus(sampling_.Run(logits, stride, stream), "sampling"));
  RETURN_IF_ERROR(CopyLogits(logits, stride, stream));
  return CudaStatus(cudaEventRecord(sent_[choice()].get(), stream), "sampling");
}

// Copies neighbouring rows that are not sampled with one copy.
absl::Status PassOutput::CopyLogits(const float* logits, int64_t stride, cudaStream_t stream) {
  const int64_t rows = sampling_.rows(choice());
  const size_t row_bytes = static_cast<size_t>(vocab_) * sizeof(float);
  for (int64_t begin = 0, end; begin < rows; begin = end + 1) {
    end = begin;
    while (end < rows && !sampling_.IsSampled(end)) ++end;
    if (end == begin) continue;
    RETURN_IF_ERROR(
        CudaStatus(cudaMemcpy2DAsync(host_logits_.data() + begin * vocab_, row_bytes, logits + begin * stride,
                                     static_cast<size_t>(stride) * sizeof(float), row_bytes,
                                     static_cast<size_t>(end - begin), cudaMemcpyDeviceToHost, stream),
                   "copying logits"));
  }
  return absl::OkStatus();
}

absl::StatusOr<LogitsView> PassOutput::Fetch(int choice) {
  if (!has_logits_) return LogitsView{};
  RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(sent_[choice].get()), "the forward pass"));
  return LogitsView{.data = host_logits_.data(),
                    .rows = sampling_.rows(choice),
                    .vocab = vocab_,
                    .sampled = sampling_.Tokens(choice)};
}

}  // namespace baton
