// Overlapping launches of the small kernels of a decode step. On Hopper, a kernel is launched while
// the previous kernel still runs ("programmatic dependent launch"). Its CTAs start wherever a
// multiprocessor has space, do the work that depends on no other kernel, and then wait.
//
// Rules that make this safe:
//
// - Every thread of such a kernel calls WaitForPrevious before it reads data that an earlier kernel
//   wrote. It also does so before it writes data that an earlier kernel may still read. Before that
//   call, it may read weights and data that was uploaded before the pass.
// - WaitForPrevious returns when all of the previous kernel has ended and its writes are visible.
//   The previous kernel waited too, so the same holds for all kernels before it.
// - A plain launch, such as that of cuBLASLt or of the first kernel of a pass, starts when all
//   earlier work has ended.
// - LetNextStart promises nothing about this kernel's results. It lets CTAs of the next kernel
//   start once every CTA of this kernel runs. A waiting CTA therefore never occupies the space of a
//   CTA that it waits for.
#pragma once

#include <cuda_runtime.h>

#include <utility>

namespace baton::cuda {

// Lets the next kernel start early. Does nothing on devices before Hopper.
__device__ inline void LetNextStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits for the previous kernel. Does nothing on devices before Hopper.
__device__ inline void WaitForPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Reads an attribute of the current device.
inline cudaError_t DeviceAttribute(cudaDeviceAttr attribute, int* value) {
  int device = 0;
  const cudaError_t status = cudaGetDevice(&device);
  return status != cudaSuccess ? status : cudaDeviceGetAttribute(value, attribute, device);
}

// Launches a kernel that calls WaitForPrevious. On devices other than Hopper, the kernel starts
// when all earlier work has ended. Later devices run the code for Ampere, in which WaitForPrevious
// does nothing.
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
