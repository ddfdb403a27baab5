// How the small kernels of a decode step follow one another. On Hopper each is launched while the one before it still
// runs ("programmatic dependent launch"): its blocks start wherever there is room, do what depends on nothing and wait.
//
// What makes that safe:
// - A kernel that is launched so calls WaitForPrevious in every thread, before it reads what an earlier kernel wrote
//   and before it writes what an earlier one may still read. Before that it may read weights, and what was uploaded
//   before the pass.
// - The wait ends when all of the kernel before has ended and what it wrote can be seen. As that one waited too, so has
//   everything before it.
// - Whatever is launched plainly, as cuBLASLt and the first kernel of a pass are, starts when all before it has ended.
// - LetNextStart promises nothing of what this kernel has done: it only lets the next one's blocks start, once every
//   block of this one runs, so that none that waits keeps out one that is waited for.
#pragma once

#include <cuda_runtime.h>

#include <utility>

namespace baton::cuda {

__device__ inline void LetNextStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ inline void WaitForPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Of the device that is current.
inline cudaError_t DeviceAttribute(cudaDeviceAttr attribute, int* value) {
  int device = 0;
  const cudaError_t status = cudaGetDevice(&device);
  return status != cudaSuccess ? status : cudaDeviceGetAttribute(value, attribute, device);
}

// Launches a kernel that calls WaitForPrevious. On other devices than Hopper it starts when all before it has ended:
// those later ones run what was compiled for Ampere, which does not wait by itself.
template <typename... Parameters, typename... Arguments>
cudaError_t LaunchEarly(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared_bytes, cudaStream_t stream,
                        Arguments&&... arguments) {
  int major = 0;
  if (const cudaError_t status = DeviceAttribute(cudaDevAttrComputeCapabilityMajor, &major); status != cudaSuccess) {
    return status;
  }
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = major == 9 ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace baton::cuda
