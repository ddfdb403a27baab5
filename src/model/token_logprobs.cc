#include "model/token_logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/sampler_kernels.h"

namespace baton {
namespace {

// Returns the n most likely tokens with their logits, without tokens of logit -inf. It sorts by
// insertion, because few elements of a long row pass the first test.
std::vector<std::pair<TokenId, float>> Top(std::span<const float> logits, size_t n) {
  std::vector<std::pair<TokenId, float>> top;
  top.reserve(n + 1);
  float least = -std::numeric_limits<float>::infinity();
  for (size_t id = 0; n > 0 && id < logits.size(); ++id) {
    const float logit = logits[id];
    if (logit <= least) continue;  // also a logit of -inf
    const auto at =
        std::upper_bound(top.begin(), top.end(), logit, [](float l, const auto& e) { return l > e.second; });
    top.insert(at, {static_cast<TokenId>(id), logit});
    if (top.size() > n) top.pop_back();
    if (top.size() == n) least = top.back().second;
  }
  return top;
}

}  // namespace

TokenLogprobs LogprobsOf(std::span<const float> logits, float max, TokenId id, int32_t top, SamplerScratch& scratch) {
  const auto n = std::ssize(logits);
  if (scratch.weights.size() < logits.size()) scratch.weights.resize(logits.size());
  FastestSamplerKernels().exp_weights(logits.data(), n, max, 1, scratch.weights.data());
  const double log_sum = std::log(FastestSamplerKernels().tail(scratch.weights.data(), n, 0).sum);
  const auto logprob = [&](float logit) { return static_cast<float>(double{logit} - max - log_sum); };
  TokenLogprobs result{.logprob = logprob(logits[static_cast<size_t>(id)]),
                       .top = Top(logits, std::min(static_cast<size_t>(top), logits.size()))};
  for (auto& [unused, value] : result.top) value = logprob(value);
  return result;
}

absl::StatusOr<TokenLogprobs> PromptLogprobsOf(std::span<const float> logits, TokenId id, int32_t top,
                                               SamplerScratch& scratch) {
  const float max = FastestSamplerKernels().max(logits.data(), std::ssize(logits));
  if (!std::isfinite(max)) {
    return absl::InternalError(absl::StrCat("logits of the prompt are not finite: largest is ", max));
  }
  TokenLogprobs result = LogprobsOf(logits, max, id, top, scratch);
  const float logit = logits[static_cast<size_t>(id)];
  result.rank = 1 + static_cast<int32_t>(std::ranges::count_if(logits, [&](float other) { return other > logit; }));
  return result;
}

}  // namespace baton
