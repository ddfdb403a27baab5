// cuBLASLt, which is loaded with dlopen when it is first needed. It is not linked for two reasons:
//
// - Programs also run on machines without CUDA.
// - Linking would add 94 KB of thread-local data to the stack of each thread. Small stacks, such as
//   those of the metrics' HTTP server, are too small for it.
#pragma once

#include <cublasLt.h>

#include "absl/status/statusor.h"

namespace baton {

// The functions of cuBLASLt, with their names.
struct CublasLt {
  decltype(&cublasLtCreate) Create;
  decltype(&cublasLtDestroy) Destroy;
  decltype(&cublasLtGetStatusString) GetStatusString;
  decltype(&cublasLtGetVersion) GetVersion;
  decltype(&cublasLtMatmul) Matmul;
  decltype(&cublasLtMatmulAlgoCapGetAttribute) MatmulAlgoCapGetAttribute;
  decltype(&cublasLtMatmulAlgoCheck) MatmulAlgoCheck;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) MatmulAlgoConfigGetAttribute;
  decltype(&cublasLtMatmulAlgoConfigSetAttribute) MatmulAlgoConfigSetAttribute;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic;
  decltype(&cublasLtMatmulDescInit_internal) MatmulDescInit_internal;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute;
  decltype(&cublasLtMatrixLayoutInit_internal) MatrixLayoutInit_internal;
  decltype(&cublasLtMatmulPreferenceInit_internal) MatmulPreferenceInit_internal;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute;
};

// Returns the library, which stays loaded as long as the process lives. UNAVAILABLE: the library is
// not on this machine, or it lacks a function. Thread-safe.
absl::StatusOr<const CublasLt*> LoadCublasLt();

}  // namespace baton
