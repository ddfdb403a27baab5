# The CUDA backend. If the toolkit is found, the kernels, the backend and their tests are targets
# (BATON_HAS_CUDA). The option BATON_CUDA determines whether the programs contain the backend
# (BATON_CUDA_IN_PROGRAMS):
# - AUTO: they do if this machine has the toolkit and a GPU. On other machines, nvcc compiles no
#   part of the programs.
# - ON: they do, for another machine with a GPU. The toolkit is required.
# - OFF: they do not, and there are no CUDA targets.
#
# A program with the backend also runs on machines without CUDA. It loads the driver when it first
# uses a GPU.
set(BATON_CUDA AUTO CACHE STRING "AUTO, ON or OFF")
set_property(CACHE BATON_CUDA PROPERTY STRINGS AUTO ON OFF)

set(BATON_HAS_CUDA OFF)
# Sanitizers do not check device memory.
if(NOT BATON_CUDA STREQUAL "OFF" AND NOT BATON_SANITIZE)
  find_package(CUDAToolkit 13 QUIET)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE)
    set(BATON_HAS_CUDA ON)
  elseif(BATON_CUDA STREQUAL "ON")
    message(FATAL_ERROR "BATON_CUDA=ON: expected CUDA toolkit 13 or later with nvcc, found none (set CUDAToolkit_ROOT)")
  else()
    message(STATUS "CUDA toolkit 13 or later: not found; building without the CUDA backend")
  endif()
endif()

file(GLOB gpus /dev/nvidia[0-9]* /dev/dxg)  # /dev/dxg is the GPU in WSL
if(BATON_HAS_CUDA AND (gpus OR BATON_CUDA STREQUAL "ON"))
  set(BATON_CUDA_IN_PROGRAMS ON CACHE INTERNAL "")  # read by tools/bundle
else()
  set(BATON_CUDA_IN_PROGRAMS OFF CACHE INTERNAL "")
  if(BATON_HAS_CUDA)
    message(STATUS "GPU: none found; the programs are built without the CUDA backend (BATON_CUDA=ON adds it)")
  endif()
endif()

if(BATON_HAS_CUDA)
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  # Code for Ampere, and for Hopper with Hopper's own instructions. Newer devices compile Ampere's
  # code when a program starts.
  set(CMAKE_CUDA_ARCHITECTURES 80 90a-real)
  enable_language(CUDA)
  # CMake before 3.26 has no support for this flag of nvcc.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  # Each program contains all kernels. Compression reduces them from 1.1 MB to 0.4 MB.
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-compress-mode=size>)
  if(BATON_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${BATON_LAUNCHER})
  endif()
endif()
