#include "kernels/chosen_tokens.h"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;

// Counts the token `id` in a row's list. An id appears at most once in the list, so at most one
// thread finds it.
__device__ void CountChosen(SamplingRow& params, SeenToken* seen, int32_t id) {
  bool found = false;
  for (int i = threadIdx.x; i < params.seen_count; i += kThreads) {
    if (seen[i].id != id) continue;
    ++seen[i].outputs;
    found = true;
  }
  if (__syncthreads_or(found) || threadIdx.x > 0) return;
  seen[params.seen_count] = {id, 1};
  ++params.seen_count;
}

// Grid: rows.
__global__ void __launch_bounds__(kThreads) ChosenTokensKernel(const __grid_constant__ ChosenTokensArgs args) {
  const int row = blockIdx.x;
  const int32_t from = args.follows[row];
  if (from < 0) return;
  const int32_t id = max(args.chosen[from], 0);
  if (threadIdx.x == 0) args.tokens[row] = id;
  if (args.params == nullptr) return;
  SamplingRow& params = args.params[row];
  if (params.seen_count > 0) CountChosen(params, args.seen + params.seen_begin, id);
}

}  // namespace

cudaError_t LaunchChosenTokens(const ChosenTokensArgs& args, cudaStream_t stream) {
  if (args.rows < 1) return cudaErrorInvalidValue;
  ChosenTokensKernel<<<args.rows, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace baton::cuda
