// The distribution of tokens that a CUDA device draws. On a host device, this tests the plans and
// uploads of CudaSampling with a stand-in for the kernels.
#include "model/sampling_distribution.h"

#include "backend/cuda/cuda_test_device.h"
#include "backend/cuda/pass_output.h"
#include "kernels/device_array.h"
#include "kernels/logit_mask.h"

namespace baton {
namespace {

// Draws with the seeds [begin, begin + rows) in one launch.
class DeviceDraws {
 public:
  static constexpr int64_t kRows = 250;

  explicit DeviceDraws(const DistributionLogits& logits)
      : vocab_(std::ssize(logits.raw)), stride_((vocab_ + 3) / 4 * 4), output_(vocab_, true) {
    REQUIRE(output_.Prepare().ok());
    std::vector<float> rows;
    for (int64_t row = 0; row < kRows; ++row) {
      rows.insert(rows.end(), logits.raw.begin(), logits.raw.end());
      rows.resize(static_cast<size_t>((row + 1) * stride_), NAN);
    }
    logits_ = cuda::DeviceArray<float>(rows);
    if (logits.unnamed.empty()) return;
    const cuda::DeviceArray<TokenId> unnamed(logits.unnamed);
    REQUIRE(cuda::LaunchLogitMask(unnamed.data(), static_cast<int32_t>(unnamed.size()), kRows, stride_, logits_.data(),
                                  cudaStreamPerThread) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess);
  }

  std::span<const SampledToken> Draw(const DistributionSetting& setting, int64_t begin) {
    std::vector<Sampler> samplers;
    for (int64_t row = 0; row < kRows; ++row)
      samplers.push_back(SamplerOf(setting, static_cast<uint64_t>(begin + row)));
    std::vector<SampleSpec> specs;
    for (const Sampler& sampler : samplers) specs.push_back(sampler.Spec());
    std::vector<const SampleSpec*> rows;
    for (const SampleSpec& spec : specs) rows.push_back(&spec);
    upload_.Clear();
    REQUIRE(output_.sampling()->Plan(rows, upload_).ok());
    REQUIRE(output_.sampling()->ReserveShaped().ok());
    REQUIRE(output_.Reserve(kRows, cudaStreamPerThread).ok());
    REQUIRE(upload_.Send("test", cudaStreamPerThread).ok());
    REQUIRE(output_.Send(logits_.data(), stride_, cudaStreamPerThread).ok());
    const auto view = output_.Fetch(output_.choice());
    REQUIRE(view.ok());
    REQUIRE(std::ssize(view->sampled) == kRows);
    return view->sampled;
  }

 private:
  const int64_t vocab_, stride_;
  cuda::DeviceArray<float> logits_;
  PassOutput output_;
  UploadBuffer upload_;
};

TEST_CASE("A CUDA device draws from the distribution that the parameters define") {
  if (!HasDevice()) return;
  CheckDistributions(SmallDistributionLogits(),
                     [](const DistributionSetting& setting, const DistributionLogits& row, int64_t draws) {
                       DeviceDraws launches(row);
                       std::vector<int64_t> counts(row.raw.size());
                       for (int64_t begin = 0; begin < draws; begin += DeviceDraws::kRows) {
                         for (const SampledToken& token : launches.Draw(setting, begin)) {
                           REQUIRE(token.id >= 0);
                           ++counts[static_cast<size_t>(token.id)];
                         }
                       }
                       return counts;
                     });
}

}  // namespace
}  // namespace baton
