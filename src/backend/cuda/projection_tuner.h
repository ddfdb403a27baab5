// The choice of kernels for a model's projections, before the first step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "backend/cuda/cuda_matmul.h"

namespace baton {

// Products of one shape: y = x w^T for any of the weights.
struct Projection {
  // Without w, y and rows. Its x has space for `most_rows` rows.
  MatrixProduct product;
  std::vector<const __nv_bfloat16*> weights;  // of all layers
  int64_t most_rows = 0;                      // largest number of rows in a step
};

// Makes a CudaMatmul learn all projections of a model before the first step. Otherwise the
// CudaMatmul would learn each product in the step that needs it first, and the step would wait.
class ProjectionTuner {
 public:
  // The matmul and the stream must outlive the tuner.
  ProjectionTuner(CudaMatmul& matmul, cudaStream_t stream) : matmul_(matmul), stream_(stream) {}

  // Learns every projection for each class of row counts up to the largest step. Takes seconds for
  // a large model, and waits for the stream.
  absl::Status Tune(std::span<const Projection> projections);

 private:
  CudaMatmul& matmul_;
  const cudaStream_t stream_;
};

}  // namespace baton
