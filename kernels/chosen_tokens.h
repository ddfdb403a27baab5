// Puts the tokens that one decode step chose where the next one reads them, so that it can be enqueued before the host
// knows them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/sampling.h"

namespace baton::cuda {

// Device pointers.
struct ChosenTokensArgs {
  const int32_t* chosen = nullptr;   // of the step before: SamplingArgs::ids
  const int32_t* follows = nullptr;  // [rows] which of them is the row's token; negative: none, the row stays as it is
  int32_t rows = 0;
  int32_t* tokens = nullptr;  // [rows] result: 0 where none could be chosen
  // [rows] and their lists, or null: of rows with penalties, the token is one more that was chosen. Each such row has
  // room for one token after its last.
  SamplingRow* params = nullptr;
  SeenToken* seen = nullptr;
};

cudaError_t LaunchChosenTokens(const ChosenTokensArgs& args, cudaStream_t stream);

}  // namespace baton::cuda
