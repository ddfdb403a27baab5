#include "backend/cuda/projection_tuner.h"

#include "base/status.h"

namespace baton {

absl::Status ProjectionTuner::Tune(std::span<const Projection> projections) {
  for (const Projection& projection : projections) {
    MatrixProduct product = projection.product;
    const int64_t most_rows = CudaMatmul::RowsPlannedFor(projection.most_rows);
    for (product.rows = CudaMatmul::RowsPlannedFor(1); product.rows <= most_rows; product.rows *= 2) {
      RETURN_IF_ERROR(matmul_.Learn(product, projection.weights, stream_));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton
