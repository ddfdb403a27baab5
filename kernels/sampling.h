// Chooses every row's next token from its logits on the device, as model/sampler.h does on the CPU. A choice depends on
// the row's own logits and parameters alone.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "model/draw_params.h"

namespace baton::cuda {

struct SamplingRow {
  DrawParams draw{};
  int32_t seen_begin = 0;  // the penalised tokens: seen[seen_begin, seen_begin + seen_count)
  int32_t seen_count = 0;  // 0 also where no penalty is set
  double uniform = 0;      // in [0, 1): the random number of the draw
};

struct SeenToken {
  int32_t id = 0;       // once in a row; ignored past the vocabulary
  int32_t outputs = 0;  // times it was chosen; 0: in the prompt only
};

inline constexpr int32_t kMaxSampledVocab = 262144;

// Device pointers.
struct SamplingArgs {
  float* logits = nullptr;  // [rows, stride], aligned to 16 bytes; changed during a launch, the same after it
  int64_t stride = 0;       // a multiple of 4, >= vocab; all of it may be read
  int32_t rows = 0;
  int32_t vocab = 0;                    // <= kMaxSampledVocab
  const SamplingRow* params = nullptr;  // [rows]
  const SeenToken* seen = nullptr;
  float* seen_logits = nullptr;  // as long: scratch of the launch
  void* workspace = nullptr;     // SamplingWorkspaceBytes, aligned to 16 bytes. Zero it once; a launch leaves it ready

  int32_t* ids = nullptr;     // [rows] result; -1 where the largest logit is not finite (NaN counts as the largest)
  float* logprobs = nullptr;  // [rows] result: of the ids, under the raw distribution
  float* maxima = nullptr;    // [rows] result: the largest raw logits
};

// For launches of up to so many rows.
int64_t SamplingWorkspaceBytes(int32_t rows);

// Tokens less likely than 2^-40 times the most likely one (after temperature) are never drawn.
cudaError_t LaunchSampling(const SamplingArgs& args, cudaStream_t stream);

}  // namespace baton::cuda
