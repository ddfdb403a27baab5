// cuBLASLt, loaded when it is first wanted. Not linked: programs run on machines without CUDA too, and each of its
// threads' stacks would have to hold 94 KB of its thread-local data (small stacks, as the metrics' HTTP server has,
// cannot).
#pragma once

#include <cublasLt.h>

#include "absl/status/statusor.h"

namespace baton {

// Its functions, under their names.
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

// Lives as long as the process. UNAVAILABLE: the library is not on this machine, or is another version.
absl::StatusOr<const CublasLt*> LoadCublasLt();

}  // namespace baton
