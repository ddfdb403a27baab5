#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>

#include "kernels/sampling.h"
#include "model/sampler.h"
#include "test/kernels/device_array.h"
#include "test/kernels/kernel_case.h"
#include "test/kernels/random_values.h"

namespace baton::cuda {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// Relative distance of a draw to a boundary, or of a filter to its threshold, within which both
// sides are right.
constexpr double kSlack = 1e-4;

// Rows to sample, on the host.
struct Problem {
  int32_t vocab = 0;
  int64_t stride = 0;
  std::vector<SamplingRow> params;
  std::vector<SeenToken> seen;
  std::vector<TokenBias> biases = {{}};  // never empty
  std::vector<float> logits = {};        // [rows, stride]
  // [rows]: the seed from which the CPU's sampler draws a row's `uniform`. Unset if no seed gives
  // that draw.
  std::vector<std::optional<uint64_t>> seeds = {};

  std::span<const TokenBias> BiasesOf(size_t row) const {
    return std::span(biases).subspan(static_cast<size_t>(params[row].bias_begin),
                                     static_cast<size_t>(params[row].bias_count));
  }
  const float* Row(size_t row) const { return logits.data() + row * stride; }
};

struct Launched {
  DeviceArray<SamplingRow> params;
  DeviceArray<SeenToken> seen;
  DeviceArray<float> seen_logits;
  DeviceArray<TokenBias> biases;
  DeviceArray<float> bias_logits;
  DeviceArray<float> logits;
  DeviceArray<uint8_t> workspace;
  DeviceArray<int32_t> ids;
  DeviceArray<float> logprobs;
  DeviceArray<float> maxima;
  SamplingArgs args;

  Launched(const Problem& problem, const DeviceArray<float>& device_logits)
      : params(problem.params),
        seen(problem.seen),
        seen_logits(problem.seen.size()),
        biases(problem.biases),
        bias_logits(problem.biases.size()),
        logits(device_logits),
        workspace(std::vector<uint8_t>(SamplingWorkspaceBytes(static_cast<int32_t>(problem.params.size())))),
        ids(problem.params.size()),
        logprobs(problem.params.size()),
        maxima(problem.params.size()),
        args{.logits = logits.data(),
             .stride = problem.stride,
             .rows = static_cast<int32_t>(problem.params.size()),
             .vocab = problem.vocab,
             .params = params.data(),
             .seen = seen.data(),
             .seen_logits = seen_logits.data(),
             .biases = biases.data(),
             .bias_logits = bias_logits.data(),
             .workspace = workspace.data(),
             .ids = ids.data(),
             .logprobs = logprobs.data(),
             .maxima = maxima.data()} {}
};

bool Greedy(const SamplingRow& params) { return params.draw.temperature < 1e-5f || params.draw.top_k == 1; }

// Returns a row's logits after biases and penalties, in float as the sampler computes them.
std::vector<float> Shaped(const Problem& problem, size_t row) {
  const SamplingRow& params = problem.params[row];
  std::vector<float> logits(problem.Row(row), problem.Row(row) + problem.vocab);
  if (params.only_biased) std::ranges::fill(logits, -kInf);
  for (const auto& [id, bias] : problem.BiasesOf(row)) {
    if (id < problem.vocab) logits[id] = problem.Row(row)[id] + bias;
  }
  for (int32_t i = 0; i < params.seen_count; ++i) {
    const SeenToken& seen = problem.seen[params.seen_begin + i];
    if (seen.id >= problem.vocab) continue;
    float& logit = logits[seen.id];
    logit = logit > 0 ? logit / params.draw.repetition_penalty : logit * params.draw.repetition_penalty;
    if (seen.outputs > 0) {
      logit -= params.draw.presence_penalty + params.draw.frequency_penalty * static_cast<float>(seen.outputs);
    }
  }
  return logits;
}

// Decides whether a row's draw may be `chosen`. It applies the filters as they are defined, in
// double and with a full sort.
class DrawReference {
 public:
  DrawReference(const std::vector<float>& logits, const SamplingRow& params)
      : params_(params), order_(logits.size()), weights_(logits.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    for (size_t i = 0; i < logits.size(); ++i) {
      weights_[i] = std::exp((double{logits[i]} - logits[order_[0]]) / params.draw.temperature);
    }
  }

  bool Allows(int32_t chosen) const {
    return Allows(chosen, 1) || Allows(chosen, 1 - kSlack) || Allows(chosen, 1 + kSlack);
  }

 private:
  bool Allows(int32_t chosen, double threshold_scale) const {
    const std::vector<double> kept = Kept(threshold_scale);
    if (kept[chosen] == 0) return false;
    const double total = std::accumulate(kept.begin(), kept.end(), 0.0);
    const double before = std::accumulate(kept.begin(), kept.begin() + chosen, 0.0);
    const double draw = params_.uniform * total;
    return before - kSlack * total <= draw && draw <= before + kept[chosen] + kSlack * total;
  }

  // Returns the weights. Tokens that the filters remove have weight 0.
  std::vector<double> Kept(double threshold_scale) const {
    size_t size = order_.size();
    if (params_.draw.top_k > 0) size = std::min<size_t>(size, params_.draw.top_k);
    if (params_.draw.top_p < 1) {
      double target = 0;
      for (size_t i = 0; i < size; ++i) target += params_.draw.top_p * threshold_scale * weights_[order_[i]];
      size_t n = 0;
      for (double sum = 0; n < size && sum < target; ++n) sum += weights_[order_[n]];
      size = n;
    }
    if (params_.draw.min_p > 0) {
      size_t n = 0;
      while (n < size && weights_[order_[n]] >= params_.draw.min_p * threshold_scale) ++n;
      size = n;
    }
    std::vector<double> kept(weights_.size());
    for (size_t i = 0; i < size; ++i) kept[order_[i]] = weights_[order_[i]];
    return kept;
  }

  SamplingRow params_;
  std::vector<int32_t> order_;  // most likely first
  std::vector<double> weights_;
};

// The expected results of one row.
struct Expected {
  float max = 0;
  double log_sum = 0;     // of e^(raw logit - max)
  bool excluded = false;  // the biases exclude all tokens
  int32_t greedy = -1;
  std::function<bool(int32_t)> allows;  // set if the row is drawn
};

Expected Expect(const Problem& problem, size_t row) {
  const float* raw = problem.Row(row);
  Expected expected;
  expected.max = raw[0];
  for (int32_t id = 0; id < problem.vocab; ++id) {
    if (std::isnan(raw[id])) expected.max = kNan;
    if (raw[id] > expected.max) expected.max = raw[id];
  }
  if (!std::isfinite(expected.max)) return expected;
  double sum = 0;
  for (int32_t id = 0; id < problem.vocab; ++id) sum += std::exp(double{raw[id]} - expected.max);
  expected.log_sum = std::log(sum);
  const std::vector<float> shaped = Shaped(problem, row);
  expected.excluded = std::ranges::all_of(shaped, [](float logit) { return logit == -kInf; });
  if (expected.excluded) return expected;
  if (Greedy(problem.params[row])) {
    expected.greedy = static_cast<int32_t>(std::max_element(shaped.begin(), shaped.end()) - shaped.begin());
  } else {
    expected.allows = [reference = DrawReference(shaped, problem.params[row])](int32_t id) {
      return reference.Allows(id);
    };
  }
  return expected;
}

bool Agrees(const Expected& expected, const Problem& problem, size_t row, int32_t id, float logprob, float max) {
  if (!std::isfinite(expected.max)) {
    return id == kNoFiniteLogit && std::isnan(logprob) &&
           (std::isnan(expected.max) ? std::isnan(max) : max == expected.max);
  }
  if (expected.excluded) return id == kAllExcluded && max == expected.max;
  if (max != expected.max || id < 0 || id >= problem.vocab) return false;
  if (expected.allows ? !expected.allows(id) : id != expected.greedy) return false;
  return std::abs(logprob - (double{problem.Row(row)[id]} - expected.max - expected.log_sum)) < 1e-4;
}

// A row's choice by the CPU's sampler.
struct Choice {
  int32_t id = kNoFiniteLogit;
  float logprob = kNan;
};

Choice ChooseOnCpu(const Problem& problem, size_t row) {
  const SamplingRow& from = problem.params[row];
  SamplingParams params;
  params.draw = from.draw;
  const std::span seen(problem.seen.begin() + from.seen_begin, static_cast<size_t>(from.seen_count));
  std::vector<TokenId> prompt;
  for (const SeenToken& token : seen) prompt.push_back(token.id);
  TokenRules rules;
  for (const auto& [id, bias] : problem.BiasesOf(row)) {
    if (from.only_biased) params.allowed_token_ids.push_back(id);
    if (bias == -kInf) {
      rules.bad_words.push_back({id});
    } else {
      params.logit_bias.push_back({id, bias});
    }
  }
  Sampler sampler(params, prompt, problem.seeds[row].value_or(0), rules);
  for (const SeenToken& token : seen) {
    for (int32_t i = 0; i < token.outputs; ++i) sampler.Accept(token.id);
  }
  SamplerScratch scratch;
  TokenLogprobs logprobs;
  const auto id = sampler.Sample({problem.Row(row), static_cast<size_t>(problem.vocab)}, scratch, &logprobs);
  if (id.ok()) return {*id, logprobs.logprob};
  return {.id = absl::IsInvalidArgument(id.status()) ? kAllExcluded : kNoFiniteLogit};
}

// Two ids may be right if the draw is at the boundary between them, or if a filter is at its
// threshold.
bool AgreesWithCpu(const Expected& expected, const Choice& cpu, int32_t id, float logprob) {
  if (id != cpu.id) return expected.allows && expected.allows(id) && expected.allows(cpu.id);
  return id < 0 || std::abs(logprob - cpu.logprob) < 1e-4;
}

// Returns the logits that a launch leaves: the raw ones, or -inf for tokens that are excluded
// because they have no bias.
std::vector<float> Left(const Problem& problem) {
  std::vector<float> left = problem.logits;
  for (size_t row = 0; row < problem.params.size(); ++row) {
    if (!problem.params[row].only_biased) continue;
    const auto begin = left.begin() + static_cast<int64_t>(row) * problem.stride;
    std::fill(begin, begin + problem.vocab, -kInf);
    for (const TokenBias& bias : problem.BiasesOf(row)) {
      if (bias.id < problem.vocab) begin[bias.id] = problem.Row(row)[bias.id];
    }
  }
  return left;
}

KernelCase CheckCase(const std::string& name, const Problem& problem) {
  std::vector<Expected> expected;
  for (size_t row = 0; row < problem.params.size(); ++row) expected.push_back(Expect(problem, row));
  const Launched launched(problem, DeviceArray<float>(problem.logits));
  KernelCase result;
  result.name = "sampling vocab" + std::to_string(problem.vocab) + " " + name;
  result.tolerance = 0;
  result.launch = [launched](cudaStream_t stream) { return LaunchSampling(launched.args, stream); };
  // Returns the share of rows that disagree with float64 or with the CPU's sampler. Returns 1 if
  // other logits are left than expected.
  result.error = [=] {
    const auto ids = launched.ids.ToHost();
    const auto logprobs = launched.logprobs.ToHost();
    const auto maxima = launched.maxima.ToHost();
    const auto logits = launched.logits.ToHost(), left = Left(problem);
    if (std::memcmp(logits.data(), left.data(), logits.size() * sizeof(float)) != 0) return 1.0;
    double wrong = 0;
    for (size_t row = 0; row < expected.size(); ++row) {
      const bool on_cpu = Greedy(problem.params[row]) || problem.seeds[row].has_value();
      wrong += !Agrees(expected[row], problem, row, ids[row], logprobs[row], maxima[row]) ||
               (on_cpu && !AgreesWithCpu(expected[row], ChooseOnCpu(problem, row), ids[row], logprobs[row]));
    }
    return wrong / static_cast<double>(expected.size());
  };
  return result;
}

// All ways to choose, without `uniform`.
std::vector<SamplingRow> Variants() {
  return {
      {.draw = {.temperature = 0}},
      {.draw = {.temperature = 1, .top_k = 1}},
      {.draw = {.temperature = 1}},
      {.draw = {.temperature = 0.7f, .top_p = 0.9f}},
      {.draw = {.temperature = 1.5f, .top_p = 0.3f}},
      {.draw = {.temperature = 1, .top_p = 1e-6f}},
      {.draw = {.temperature = 1, .top_k = 50}},
      {.draw = {.temperature = 2, .top_k = 3}},
      {.draw = {.temperature = 1, .top_k = 1 << 30}},
      {.draw = {.temperature = 0.9f, .min_p = 0.1f}},
      {.draw = {.temperature = 1, .top_k = 40, .top_p = 0.8f}},
      {.draw = {.temperature = 3, .top_k = 20, .top_p = 0.95f, .min_p = 0.3f}},
      {.draw = {.temperature = 1, .top_k = 60, .top_p = 0.999f}},
      {.draw = {.temperature = 0.01f, .top_p = 0.5f}},
      {.draw = {.temperature = 100, .top_p = 0.5f}},
  };
}

// Adds penalties to a row. Returns the number of tokens drawn before.
int32_t AddPenalties(Problem& problem, SamplingRow& params, bool weaker, std::mt19937_64& random) {
  params.draw.repetition_penalty = weaker ? 1.3f : 0.8f;
  params.draw.presence_penalty = weaker ? -0.5f : 0.25f;
  params.draw.frequency_penalty = 0.1f;
  params.seen_begin = static_cast<int32_t>(problem.seen.size());
  // Two ids are outside the vocabulary.
  const std::vector<int64_t> ids = RandomOrder(problem.vocab + 2, random);
  params.seen_count = std::min(problem.vocab + 2, 40);
  int32_t drawn = 0;
  for (int32_t i = 0; i < params.seen_count; ++i) {
    problem.seen.push_back({.id = static_cast<int32_t>(ids[i]), .outputs = i % 4});
    drawn += i % 4;
  }
  return drawn;
}

void AddBiases(Problem& problem, SamplingRow& params, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  params.bias_begin = static_cast<int32_t>(problem.biases.size());
  const std::vector<int64_t> ids = RandomOrder(problem.vocab + 2, random);
  params.bias_count = std::min(problem.vocab + 2, 30);
  params.only_biased = random() % 2 == 0;
  for (int32_t i = 0; i < params.bias_count; ++i) {
    problem.biases.push_back({static_cast<int32_t>(ids[i]), i % 5 == 0 ? -kInf : 3 * normal(random)});
  }
}

// Returns rows of all variants, with two draws each, without and with penalties and biases.
Problem MakeProblem(int32_t vocab, const std::function<float(float)>& shape, std::mt19937_64& random) {
  Problem problem{.vocab = vocab, .stride = (vocab + 3) / 4 * 4 + 4, .params = {}, .seen = {{}}};
  for (const int shaped : {0, 1, 2, 3}) {
    for (const bool again : {false, true}) {
      for (SamplingRow params : Variants()) {
        const int32_t drawn = shaped % 2 == 0 ? 0 : AddPenalties(problem, params, again, random);
        if (shaped >= 2) AddBiases(problem, params, random);
        const uint64_t seed = random();
        const bool last = again && params.draw.top_k == 3;  // the largest possible draw
        params.uniform = last ? 1 - 0x1p-53 : UniformAt(seed, drawn);
        problem.seeds.push_back(last ? std::nullopt : std::optional(seed));
        problem.params.push_back(params);
      }
    }
  }
  problem.logits.assign(problem.params.size() * problem.stride, kNan);
  std::normal_distribution<float> normal;
  for (size_t row = 0; row < problem.params.size(); ++row) {
    for (int32_t id = 0; id < vocab; ++id) problem.logits[row * problem.stride + id] = shape(normal(random));
  }
  return problem;
}

// Returns rows that sampling refuses, and rows with few finite logits.
Problem UnusualRows(int32_t vocab) {
  constexpr uint64_t kSeed = 1;
  Problem problem{.vocab = vocab, .stride = (vocab + 3) / 4 * 4, .params = {}, .seen = {{}}};
  const auto add = [&](int32_t id, float logit, float others) {
    for (const float temperature : {0.0f, 1.0f}) {
      problem.params.push_back({.draw = {.temperature = temperature, .top_p = 0.9f}, .uniform = UniformAt(kSeed, 0)});
      problem.seeds.push_back(kSeed);
      problem.logits.resize(problem.params.size() * problem.stride, others);
      problem.logits[problem.logits.size() - problem.stride + id] = logit;
    }
  };
  for (const int32_t id : {0, vocab / 2, vocab - 1}) {
    add(id, kNan, 1);
    add(id, kInf, 1);
    add(id, -kInf, 1);
    add(id, -3, -kInf);
    add(id, -kInf, -kInf);
    add(id, kNan, -kInf);
    add(id, 0.0f, -0.0f);
  }
  return problem;
}

std::vector<KernelCase> CheckCases(std::mt19937_64& random) {
  std::vector<KernelCase> cases;
  const auto add = [&](int32_t vocab, const std::string& name, const std::function<float(float)>& shape) {
    cases.push_back(CheckCase(name, MakeProblem(vocab, shape, random)));
  };
  for (const int32_t vocab : {1, 5, 1003, 20011}) {
    add(vocab, "normal", [](float x) { return 3 * x; });
    add(vocab, "ties", [](float x) { return std::round(2 * x) / 2; });
  }
  add(4100, "equal", [](float) { return -7.5f; });
  add(4100, "peaked", [](float x) { return x > 3 ? 10 * x : x; });
  add(4100, "part -inf", [](float x) { return x > 0.5f ? -kInf : x; });
  cases.push_back(CheckCase("unusual", UnusualRows(20011)));
  return cases;
}

std::vector<KernelCase> BenchCases(std::mt19937_64& random) {
  constexpr int32_t kVocab = 128256;
  constexpr int32_t kRows = 256;
  std::vector<float> values = RandomFloats(int64_t{kRows} * kVocab, random);
  for (float& value : values) value *= 8;
  const DeviceArray<float> logits(values);
  struct Bench {
    const char* name;
    int32_t rows;
    SamplingRow params;
  };
  const Bench benches[] = {
      {"greedy", kRows, {.draw = {.temperature = 0}}},
      {"greedy", 1, {.draw = {.temperature = 0}}},
      {"temperature", kRows, {.draw = {.temperature = 0.7f}}},
      {"top-p 0.9", kRows, {.draw = {.temperature = 0.7f, .top_p = 0.9f}}},
      {"top-p 0.9", 1, {.draw = {.temperature = 0.7f, .top_p = 0.9f}}},
      {"top-k 50", kRows, {.draw = {.temperature = 0.7f, .top_k = 50}}},
      {"top-k 50 top-p 0.9", kRows, {.draw = {.temperature = 0.7f, .top_k = 50, .top_p = 0.9f}}},
  };
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<KernelCase> cases;
  for (const Bench& bench : benches) {
    Problem problem{.vocab = kVocab, .stride = kVocab, .params = {}, .seen = {{}}};
    problem.params.assign(bench.rows, bench.params);
    for (SamplingRow& params : problem.params) params.uniform = uniform(random);
    const Launched launched(problem, logits);
    KernelCase result;
    result.name = "sampling " + std::to_string(bench.rows) + " x " + std::to_string(kVocab) + " " + bench.name;
    result.bytes = double(bench.rows) * kVocab * sizeof(float);
    result.launch = [launched](cudaStream_t stream) { return LaunchSampling(launched.args, stream); };
    cases.push_back(result);
  }
  return cases;
}

}  // namespace

std::vector<KernelCase> SamplingCases(CaseSize size, uint64_t seed) {
  std::mt19937_64 random(seed);
  return size == CaseSize::kCheck ? CheckCases(random) : BenchCases(random);
}

}  // namespace baton::cuda
