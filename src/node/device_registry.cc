#include "node/cpu_device.h"
#include "node/device.h"
#ifdef BATON_CUDA_IN_PROGRAMS
#include "node/cuda_device.h"
#endif

namespace baton {

std::span<const Device* const> Devices() {
  static const CpuDevice cpu;
#ifdef BATON_CUDA_IN_PROGRAMS
  static const CudaDevice cuda;
  static constexpr const Device* kAll[] = {&cuda, &cpu};
#else
  static constexpr const Device* kAll[] = {&cpu};
#endif
  return kAll;
}

}  // namespace baton
