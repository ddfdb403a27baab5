// The kernel that copies the tokens that one decode step chose into the inputs of the next step.
// The next step can then be enqueued before the host has read the tokens.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/sampling.h"

namespace baton::cuda {

// The arguments of LaunchChosenTokens. The pointers are device pointers.
struct ChosenTokensArgs {
  // The tokens that the previous step chose: SamplingArgs::ids.
  const int32_t* chosen = nullptr;
  // [rows], the index in `chosen` of the row's token. A row with a negative index stays as it is.
  const int32_t* follows = nullptr;
  int32_t rows = 0;
  // [rows], the result. 0 if no token could be chosen (a negative code of SamplingArgs::ids).
  int32_t* tokens = nullptr;
  // [rows] and their lists, or null. For a row with penalties, the token is added to its list or
  // counted there. Each such list has space for one more token at its end.
  SamplingRow* params = nullptr;
  SeenToken* seen = nullptr;
};

// Enqueues the kernel. Returns cudaErrorInvalidValue if there are no rows.
cudaError_t LaunchChosenTokens(const ChosenTokensArgs& args, cudaStream_t stream);

}  // namespace baton::cuda
