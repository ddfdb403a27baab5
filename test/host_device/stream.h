// A CUDA device that is the host: the functions of the runtime, of cuBLASLt and the launchers of kernels/ that the CUDA
// backend calls, as plain code. A program that has these needs no GPU, and what the backend's host code does can be
// tested anywhere, and by sanitizers. It says nothing of the kernels, nor of time.
//
// It is stricter than a device. What is enqueued runs when somebody waits for it and no sooner, so that the host's side
// of a copy that is changed or freed too early shows; new memory is full of NaN, and who reads or writes beyond it, or
// once it is freed, crashes; while a graph is captured nothing may be allocated, freed or waited for.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

namespace baton::host_device {

// All of this takes place under one lock. What is for no stream, or for the thread's own, is done at once.
cudaError_t Enqueue(cudaStream_t stream, std::function<void()> work);

// So far, of all graphs.
int64_t GraphLaunches();

}  // namespace baton::host_device
