// CUDA's errors as statuses.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace baton {

// `what` was asked of the device. RESOURCE_EXHAUSTED: out of device memory; UNAVAILABLE: no device or no driver.
inline absl::Status CudaStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();  // else the next launch would be taken to have failed
  const char* hint = error == cudaErrorInsufficientDriver ? " (no NVIDIA driver here, or too old a one)" : "";
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
