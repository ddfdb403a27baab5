// Chooses how a model's projections are computed, before the first step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "backend/cuda/cuda_matmul.h"

namespace baton {

// Products of one shape: y = x w^T for any of the weights.
struct Projection {
  MatrixProduct product;                      // without w, y and rows; x has room for `most_rows`
  std::vector<const __nv_bfloat16*> weights;  // of all layers
  int64_t most_rows = 0;                      // of a step
};

// A CudaMatmul learns a product that it meets for the first time, and the step waits for that. The
// tuner therefore lets it learn, for every projection, each class of row counts up to the largest
// step.
class ProjectionTuner {
 public:
  // Both must outlive the tuner.
  ProjectionTuner(CudaMatmul& matmul, cudaStream_t stream) : matmul_(matmul), stream_(stream) {}

  // Takes seconds for a large model, and waits for the stream.
  absl::Status Tune(std::span<const Projection> projections);

 private:
  CudaMatmul& matmul_;
  const cudaStream_t stream_;
};

}  // namespace baton
