// The conversion of CUDA errors to statuses.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace baton {

// Converts `error` of the operation `what`. RESOURCE_EXHAUSTED: out of memory. UNAVAILABLE: no such
// device or no driver. INTERNAL: all other errors.
inline absl::Status CudaStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  // Clears the error, which the next launch would otherwise report.
  (void)cudaGetLastError();
  const char* hint = error == cudaErrorInsufficientDriver ? " (no NVIDIA driver, or the driver is too old)" : "";
  const std::string message = absl::StrCat("CUDA: ", what, ": ", cudaGetErrorString(error), hint);
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(message);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInvalidDevice:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace baton
