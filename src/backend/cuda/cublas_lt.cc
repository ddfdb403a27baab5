#include "backend/cuda/cublas_lt.h"

#include <dlfcn.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace baton {
namespace {

const std::string& LibraryName() {
  static const std::string name = absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR);
  return name;
}

template <typename Function>
absl::Status Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(LibraryName(), " has no ", name));
}

absl::StatusOr<const CublasLt*> Load() {
  void* library = dlopen(LibraryName().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::UnavailableError(absl::StrCat(dlerror(), ": install CUDA ", CUBLAS_VER_MAJOR,
                                               "'s libraries, or name their folder in LD_LIBRARY_PATH"));
  }
  static CublasLt lt;
  RETURN_IF_ERROR(Find(library, "cublasLtCreate", lt.Create));
  RETURN_IF_ERROR(Find(library, "cublasLtDestroy", lt.Destroy));
  RETURN_IF_ERROR(Find(library, "cublasLtGetStatusString", lt.GetStatusString));
  RETURN_IF_ERROR(Find(library, "cublasLtGetVersion", lt.GetVersion));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmul", lt.Matmul));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulAlgoCapGetAttribute", lt.MatmulAlgoCapGetAttribute));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulAlgoCheck", lt.MatmulAlgoCheck));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulAlgoConfigGetAttribute", lt.MatmulAlgoConfigGetAttribute));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulAlgoConfigSetAttribute", lt.MatmulAlgoConfigSetAttribute));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulAlgoGetHeuristic", lt.MatmulAlgoGetHeuristic));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulDescInit_internal", lt.MatmulDescInit_internal));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulDescSetAttribute", lt.MatmulDescSetAttribute));
  RETURN_IF_ERROR(Find(library, "cublasLtMatrixLayoutInit_internal", lt.MatrixLayoutInit_internal));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulPreferenceInit_internal", lt.MatmulPreferenceInit_internal));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulPreferenceSetAttribute", lt.MatmulPreferenceSetAttribute));
  return &lt;
}

}  // namespace

absl::StatusOr<const CublasLt*> LoadCublasLt() {
  static const absl::StatusOr<const CublasLt*> loaded = Load();
  return loaded;
}

}  // namespace baton
