// The choice of every row's next token from its logits on the device, with the rules of
// model/sampler.h. A choice depends only on the row's own logits and parameters.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "model/draw_params.h"

namespace baton::cuda {

// The parameters of one row.
struct SamplingRow {
  DrawParams draw{};
  // The penalised tokens are seen[seen_begin, seen_begin + seen_count).
  int32_t seen_begin = 0;
  // 0 also if no penalty is set.
  int32_t seen_count = 0;
  // The biases are biases[bias_begin, bias_begin + bias_count).
  int32_t bias_begin = 0;
  int32_t bias_count = 0;
  // All tokens without a bias are excluded.
  bool only_biased = false;
  // The random number of the draw, in [0, 1).
  double uniform = 0;
};

// A token to which penalties apply.
struct SeenToken {
  // At most once in a row. Ignored if it is outside of the vocabulary.
  int32_t id = 0;
  // Times that the token was chosen. 0 for a token of the prompt only.
  int32_t outputs = 0;
};

// The largest logit of the row is not finite.
inline constexpr int32_t kNoFiniteLogit = -1;
// The biases exclude all tokens.
inline constexpr int32_t kAllExcluded = -2;

// The largest vocabulary for which tokens can be chosen on the device.
inline constexpr int32_t kMaxSampledVocab = 262144;

// The arguments of LaunchSampling. The pointers are device pointers.
struct SamplingArgs {
  // [rows, stride], aligned to 16 bytes. A launch changes the logits and restores them. Only those
  // that `only_biased` excludes stay at -inf.
  float* logits = nullptr;
  // A multiple of 4, at least vocab. All of a row may be read.
  int64_t stride = 0;
  int32_t rows = 0;
  int32_t vocab = 0;                    // <= kMaxSampledVocab
  const SamplingRow* params = nullptr;  // [rows]
  const SeenToken* seen = nullptr;
  // Scratch memory of a launch, as long as `seen`.
  float* seen_logits = nullptr;
  // Each id at most once in a row. Ignored if it is outside of the vocabulary.
  const TokenBias* biases = nullptr;
  // Scratch memory of a launch, as long as `biases`.
  float* bias_logits = nullptr;
  // SamplingWorkspaceBytes, aligned to 16 bytes. The caller zeroes it once, and each launch leaves
  // it ready for the next launch.
  void* workspace = nullptr;

  // [rows], the result, or one of the two codes below. NaN counts as the largest logit.
  int32_t* ids = nullptr;
  // [rows], the log probabilities of the ids under the raw distribution.
  float* logprobs = nullptr;
  // [rows], the largest raw logits.
  float* maxima = nullptr;
};

// Returns the bytes of workspace for launches of up to `rows` rows.
int64_t SamplingWorkspaceBytes(int32_t rows);

// Enqueues the choice. Never draws tokens whose probability, after temperature, is below 2^-40 of
// the most likely token's.
cudaError_t LaunchSampling(const SamplingArgs& args, cudaStream_t stream);

}  // namespace baton::cuda
