// The launchers of sampling, of the mask of logits, and of the kernel that feeds chosen tokens to
// the next step. Sampling follows model/sampler.h and sorts all candidates.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "host_device/stream.h"
#include "kernels/chosen_tokens.h"
#include "kernels/logit_mask.h"
#include "kernels/sampling.h"

namespace baton::cuda {
namespace {

struct Candidate {
  int32_t id;
  double weight;
};

// Returns the index of the largest of [vocab] logits. NaN counts as the largest.
int32_t Largest(const std::vector<float>& logits) {
  const auto less = [](float a, float b) { return !std::isnan(a) && (std::isnan(b) || a < b); };
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end(), less) - logits.begin());
}

void Bias(const SamplingArgs& args, const SamplingRow& row, float* from, std::vector<float>& logits) {
  if (row.only_biased) std::ranges::fill(logits, -INFINITY);
  for (int32_t i = row.bias_begin; i < row.bias_begin + row.bias_count; ++i) {
    const auto& [id, bias] = args.biases[i];
    if (id >= args.vocab) continue;
    // The kernel keeps the logits here that it restores later.
    args.bias_logits[i] = from[id];
    logits[static_cast<size_t>(id)] = from[id] + bias;
  }
  if (!row.only_biased) return;
  // The kernel restores only the logits of tokens with a bias.
  std::fill_n(from, args.vocab, -INFINITY);
  for (int32_t i = row.bias_begin; i < row.bias_begin + row.bias_count; ++i) {
    if (args.biases[i].id < args.vocab) from[args.biases[i].id] = args.bias_logits[i];
  }
}

void Penalise(const SamplingArgs& args, const SamplingRow& row, std::vector<float>& logits) {
  for (int32_t i = row.seen_begin; i < row.seen_begin + row.seen_count; ++i) {
    const SeenToken& seen = args.seen[i];
    if (seen.id >= args.vocab) continue;
    float& logit = logits[static_cast<size_t>(seen.id)];
    // The kernel keeps the logits here that it restores later.
    args.seen_logits[i] = logit;
    logit = logit > 0 ? logit / row.draw.repetition_penalty : logit * row.draw.repetition_penalty;
    if (seen.outputs == 0) continue;
    logit -= row.draw.presence_penalty + row.draw.frequency_penalty * static_cast<float>(seen.outputs);
  }
}

double Sum(const std::vector<Candidate>& candidates) {
  return std::accumulate(candidates.begin(), candidates.end(), 0.0,
                         [](double sum, const Candidate& c) { return sum + c.weight; });
}

void Filter(const DrawParams& draw, std::vector<Candidate>& candidates) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.weight > b.weight; });
  if (draw.top_k > 0 && draw.top_k < std::ssize(candidates)) candidates.resize(static_cast<size_t>(draw.top_k));
  if (draw.top_p < 1) {
    const double enough = double{draw.top_p} * Sum(candidates);
    size_t kept = 0;
    for (double sum = 0; kept < candidates.size() && sum < enough; ++kept) sum += candidates[kept].weight;
    candidates.resize(std::max<size_t>(kept, 1));
  }
  std::erase_if(candidates, [&](const Candidate& c) { return c.weight < double{draw.min_p}; });
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
}

int32_t Choose(const SamplingRow& row, const std::vector<float>& logits) {
  const int32_t largest = Largest(logits);
  if (row.draw.temperature < 1e-5f || row.draw.top_k == 1) return largest;
  std::vector<Candidate> candidates;
  for (int32_t id = 0; id < std::ssize(logits); ++id) {
    const float above = (logits[static_cast<size_t>(id)] - logits[static_cast<size_t>(largest)]) / row.draw.temperature;
    candidates.push_back({id, std::exp(double{above})});
  }
  Filter(row.draw, candidates);
  double left = row.uniform * Sum(candidates);
  for (const Candidate& c : candidates) {
    left -= c.weight;
    if (left < 0) return c.id;
  }
  return candidates.back().id;
}

void SampleRow(const SamplingArgs& args, int32_t row) {
  float* from = args.logits + row * args.stride;
  std::vector<float> logits(from, from + args.vocab);
  const float max = logits[static_cast<size_t>(Largest(logits))];
  args.maxima[row] = max;
  args.ids[row] = kNoFiniteLogit;
  if (!std::isfinite(max)) return;
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - double{max});
  Bias(args, args.params[row], from, logits);
  Penalise(args, args.params[row], logits);
  args.ids[row] = kAllExcluded;
  if (logits[static_cast<size_t>(Largest(logits))] == -INFINITY) return;
  const int32_t id = Choose(args.params[row], logits);
  args.ids[row] = id;
  args.logprobs[row] = static_cast<float>(double{from[id]} - double{max} - std::log(sum));
}

}  // namespace

int64_t SamplingWorkspaceBytes(int32_t rows) { return rows * int64_t{sizeof(int64_t)}; }

cudaError_t LaunchSampling(const SamplingArgs& args, cudaStream_t stream) {
  if (args.stride % 4 != 0 || args.stride < args.vocab || args.vocab > kMaxSampledVocab) return cudaErrorInvalidValue;
  host_device::CheckOnDevice({args.logits, args.params, args.seen, args.seen_logits, args.biases, args.bias_logits,
                              args.workspace, args.ids, args.logprobs, args.maxima});
  return host_device::Enqueue(stream, [args] {
    for (int32_t row = 0; row < args.rows; ++row) {
      BATON_CHECK(static_cast<const int64_t*>(args.workspace)[row] == 0, "the workspace of sampling is zeroed once");
    }
    for (int32_t row = 0; row < args.rows; ++row) SampleRow(args, row);
  });
}

cudaError_t LaunchLogitMask(const int32_t* ids, int32_t count, int32_t rows, int64_t stride, float* logits,
                            cudaStream_t stream) {
  if (rows < 1 || count < 1) return cudaErrorInvalidValue;
  host_device::CheckOnDevice({ids, logits});
  return host_device::Enqueue(stream, [=] {
    for (int64_t row = 0; row < rows; ++row) {
      for (int32_t i = 0; i < count; ++i) logits[row * stride + ids[i]] = -INFINITY;
    }
  });
}

cudaError_t LaunchChosenTokens(const ChosenTokensArgs& args, cudaStream_t stream) {
  if (args.rows < 1) return cudaErrorInvalidValue;
  host_device::CheckOnDevice({args.chosen, args.follows, args.tokens, args.params, args.seen});
  return host_device::Enqueue(stream, [args] {
    for (int32_t i = 0; i < args.rows; ++i) {
      if (args.follows[i] < 0) continue;
      const int32_t id = std::max(args.chosen[args.follows[i]], 0);
      args.tokens[i] = id;
      if (args.params == nullptr || args.params[i].seen_count == 0) continue;
      SamplingRow& row = args.params[i];
      SeenToken* const begin = args.seen + row.seen_begin;
      SeenToken* const end = begin + row.seen_count;
      SeenToken* const seen = std::find_if(begin, end, [&](const SeenToken& s) { return s.id == id; });
      if (seen == end) {
        *seen = {id, 0};
        ++row.seen_count;
      }
      ++seen->outputs;
    }
  });
}

}  // namespace baton::cuda
