// Tests that compare logits of tiny models with those of Hugging Face transformers in fp32.
// `tools/make_goldens` writes these.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/backend_fixture.h"
#include "catch.h"
#include "model/reference_forward.h"
#include "model/safetensors.h"
#include "model/token_logprobs.h"
#include "source_path.h"

namespace baton {
namespace {

template <class T>
std::vector<T> Values(const SafetensorsFile& file, const std::string& name) {
  const auto entry = file.tensors().find(name);
  REQUIRE(entry != file.tensors().end());
  std::vector<T> values(entry->second.bytes.size() / sizeof(T));
  std::memcpy(values.data(), entry->second.bytes.data(), values.size() * sizeof(T));
  return values;
}

void CheckGolden(const std::string& name, const std::string& kernels, double limit) {
  const std::string directory = SourcePath("test/golden/" + name);
  const auto weights = LoadWeights(directory);
  INFO(weights.status().ToString());
  REQUIRE(weights.ok());
  const auto golden = SafetensorsFile::Open(directory + "/golden.safetensors");
  REQUIRE(golden.ok());
  const std::vector<TokenId> tokens = Values<TokenId>(*golden, "tokens");
  const std::vector<int32_t> positions = Values<int32_t>(*golden, "positions");
  const std::vector<float> expected = Values<float>(*golden, "logits");

  TestBackend backend(**weights, {.threads = 2, .kernels = kernels});
  const TestSequence sequence = backend.Place(tokens);
  std::vector<float> got;
  int64_t start = 0;
  for (const int32_t position : positions) {
    const std::vector<float> logits = backend.Run({{sequence.Slice(start, position + 1, true)}});
    got.insert(got.end(), logits.begin(), logits.end());
    start = position + 1;
  }
  REQUIRE(got.size() == expected.size());
  double squared_error = 0, squares = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    squared_error += std::pow(double{got[i]} - expected[i], 2);
    squares += std::pow(double{expected[i]}, 2);
  }
  const double error = std::sqrt(squared_error / squares);
  INFO(name << ", kernels " << kernels << ": relative error " << error);
  CHECK(error <= limit);
}

// Returns the log probability of `token` in double precision.
template <class T>
double LogSoftmax(std::span<const T> logits, TokenId token) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const T logit : logits) sum += std::exp(double{logit} - largest);
  return double{logits[static_cast<size_t>(token)]} - largest - std::log(sum);
}

// The largest relative error of logits of a bf16 model.
double LogitLimit(const std::string& kernels) { return kernels == "avx512bf16" ? 1.5e-2 : 1e-2; }

// A golden model with its prompt.
struct GoldenPrompt {
  std::unique_ptr<Weights> weights;
  std::vector<TokenId> tokens;
  std::map<int64_t, double> transformers;  // log probabilities of the tokens behind these positions
  // The same of the transformer in double precision, which has no scaled rotary embedding.
  std::map<int64_t, double> exact;
  double logit_size = 0;  // the root mean square of the golden logits
};

GoldenPrompt LoadPrompt(const std::string& name) {
  const std::string directory = SourcePath("test/golden/" + name);
  GoldenPrompt prompt;
  prompt.weights = LoadWeights(directory).value();
  const auto golden = SafetensorsFile::Open(directory + "/golden.safetensors");
  REQUIRE(golden.ok());
  prompt.tokens = Values<TokenId>(*golden, "tokens");
  const std::vector<int32_t> positions = Values<int32_t>(*golden, "positions");
  const std::vector<float> logits = Values<float>(*golden, "logits");
  const auto vocab = static_cast<size_t>(prompt.weights->config.vocab);
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto next = static_cast<size_t>(positions[i]) + 1;
    if (next == prompt.tokens.size()) continue;
    prompt.transformers[positions[i]] =
        LogSoftmax<float>(std::span(logits).subspan(i * vocab, vocab), prompt.tokens[next]);
  }
  double squares = 0;
  for (const float logit : logits) squares += std::pow(double{logit}, 2);
  prompt.logit_size = std::sqrt(squares / static_cast<double>(logits.size()));
  if (name.find("llama3") != std::string::npos) return prompt;
  const ReferenceForward reference(*prompt.weights);
  for (size_t at = 5; at + 1 < prompt.tokens.size(); at += 9) {
    const std::vector<double> exact = reference.Logits(std::span(prompt.tokens).first(at + 1));
    prompt.exact[static_cast<int64_t>(at)] = LogSoftmax<double>(exact, prompt.tokens[at + 1]);
  }
  return prompt;
}

// Computes the log probabilities of all tokens of a prompt in chunks, as a decode worker does.
std::vector<double> PromptLogprobsInChunks(const GoldenPrompt& prompt, const std::string& kernels) {
  const auto vocab = static_cast<size_t>(prompt.weights->config.vocab);
  TestBackend backend(*prompt.weights, {.threads = 2, .kernels = kernels});
  const TestSequence sequence = backend.Place(prompt.tokens);
  std::vector<double> logprobs;
  SamplerScratch scratch;
  constexpr int64_t kChunk = 64;
  for (int64_t start = 0; start + 1 < std::ssize(prompt.tokens); start += kChunk) {
    const int64_t end = std::min<int64_t>(start + kChunk, std::ssize(prompt.tokens) - 1);
    SequenceSlice slice = sequence.Slice(start, end, true);
    slice.all_logits = true;
    const std::vector<float> logits = backend.Run({{slice}});
    for (int64_t at = start; at < end; ++at) {
      const std::span row = std::span(logits).subspan(static_cast<size_t>(at - start) * vocab, vocab);
      logprobs.push_back(PromptLogprobsOf(row, prompt.tokens[static_cast<size_t>(at) + 1], 0, scratch)->logprob);
    }
  }
  return logprobs;
}

double LargestError(const std::vector<double>& got, const std::map<int64_t, double>& expected) {
  double error = 0;
  for (const auto& [at, value] : expected) error = std::max(error, std::abs(got[static_cast<size_t>(at)] - value));
  return error;
}

}  // namespace

TEST_CASE("CpuBackend gives the log probabilities of transformers for tokens of a prompt") {
  for (const std::string family : {"llama3", "qwen2_5", "qwen3"}) {
    for (const std::string type : {"f32", "bf16"}) {
      const GoldenPrompt prompt = LoadPrompt("tiny_" + family + "_" + type);
      REQUIRE(prompt.transformers.size() == 7);
      CHECK(prompt.exact.size() == (family == "llama3" ? 0 : 16));
      for (const std::string& kernels : KernelNames()) {
        const std::vector<double> got = PromptLogprobsInChunks(prompt, kernels);
        const double of_golden = LargestError(got, prompt.transformers), of_exact = LargestError(got, prompt.exact);
        // A log probability has the error of its logit, and a mean of all logits' errors. The root
        // mean square of these is at most the share of the logits' size that the next test allows.
        // The limit is four times this.
        const double limit = type == "f32" ? 1e-4 : 4 * LogitLimit(kernels) * prompt.logit_size;
        INFO(family << " " << type << ", kernels " << kernels << ": errors " << of_golden << " and " << of_exact
                    << ", limit " << limit);
        CHECK(of_golden <= limit);
        CHECK(of_exact <= limit);
      }
    }
  }
}

TEST_CASE("CpuBackend gives the logits of transformers for tiny models") {
  for (const std::string& kernels : KernelNames()) {
    for (const std::string family : {"llama3", "qwen2_5", "qwen3"}) {
      CheckGolden("tiny_" + family + "_f32", kernels, 1e-5);
      // Most of the error is the rounding of stored keys and values, because these models'
      // attention is peaked on purpose. Kernels that multiply pairs of bf16 also round activations.
      // So does transformers in bf16, whose own logits differ from the fp32 logits by 2.3e-2,
      // 1.2e-2 and 1.5e-2.
      CheckGolden("tiny_" + family + "_bf16", kernels, LogitLimit(kernels));
    }
  }
}

}  // namespace baton
