#include "request/output_lengths.h"

#include <algorithm>
#include <cmath>

namespace baton {
namespace {

constexpr int32_t kOutputs = 16;   // length of the mean
constexpr double kMostGrowth = 4;  // an output counts at most this many times the mean

}  // namespace

int64_t OutputLengths::Expect(const OutputSource& source) const {
  const Mean* mean = means_.Find(source);
  if (mean == nullptr) mean = means_.Find({source.cache_domain, source.model});
  return mean == nullptr ? kPrior : std::max<int64_t>(1, std::llround(mean->tokens));
}

void OutputLengths::Learn(const OutputSource& source, int64_t tokens, bool cut_off) {
  if (tokens <= 0) return;
  // Computed before Add changes the mean of the cache domain, which may stand for the agent's.
  const auto length = static_cast<double>(cut_off ? std::max(tokens, Expect(source)) : tokens);
  Add({source.cache_domain, source.model}, length);
  if (!source.agent.empty()) Add(source, length);
}

void OutputLengths::Add(const OutputSource& source, double tokens) {
  const Mean* known = means_.Find(source);
  Mean mean = known == nullptr ? Mean{} : *known;
  if (mean.outputs > 0) tokens = std::min(tokens, kMostGrowth * mean.tokens);
  mean.outputs = std::min(mean.outputs + 1, kOutputs);
  mean.tokens += (tokens - mean.tokens) / mean.outputs;
  means_.Put(source, mean);
}

int64_t ExpectedLeft(int64_t expected, int64_t made, int64_t limit) {
  if (made >= limit) return 0;
  int64_t length = std::max<int64_t>(expected, 1);
  while (length <= made) length *= 2;
  return std::min(length, limit) - made;
}

}  // namespace baton
