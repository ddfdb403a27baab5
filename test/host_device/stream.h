// A CUDA device that the host imitates. This folder implements the functions of the runtime, those
// of cuBLASLt and the launchers of kernels/ that the CUDA backend calls, as plain code. A program
// that links them needs no GPU. It can test the host code of the CUDA backend and the references
// that kernels are compared with. It tests neither kernels nor time.
//
// - Enqueued work runs only when a caller waits for it. This shows buffers on the host that change
//   or are freed before a copy has read them.
// - With HOST_DEVICE_RUNS=at_once in the environment, work runs when it is enqueued. This shows
//   buffers that are filled too late.
// - New memory is full of 0xff, which is NaN.
// - An access to freed memory, or beyond the last page of an allocation, crashes. A freeing call
//   checks for writes to the rest of an allocation's pages.
// - Kernels may receive only memory of the current device, or of a device to whose memory it has
//   access.
// - Both ends of a copy must lie where the kind of the copy requires.
// - During the capture of a graph, allocating, freeing and waiting are errors.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <initializer_list>

namespace baton::host_device {

// Launches `work`. Returns the last error, as kernels' launchers do, and clears it. All work runs
// under one lock. With a null stream, work runs at once.
cudaError_t Enqueue(cudaStream_t stream, std::function<void()> work);

// Sets the number of devices during its lifetime. Together they have as much memory as one device.
// Without it, there is one device.
struct Devices {
  Devices(int count, bool reach_each_other);
  ~Devices();
};

// Aborts unless each pointer is null or points to memory of the current device, or of a device to
// whose memory it has access.
void CheckOnDevice(std::initializer_list<const void*> pointers);

// The number of graph launches so far.
int64_t GraphLaunches();

// Number of times that cuBLASLt was asked for algorithms so far. A product whose algorithm has been
// chosen does not ask.
int64_t Suggestions();

// Refuses one of the calls that allocate memory, enqueue work or make a graph, after `calls` more
// of them. With `permanent`, the device has failed. All later calls are refused, and waits return
// an error.
void FailAfter(int64_t calls, bool permanent = false);
// Ends the faults. Returns whether a call has been refused since FailAfter, and whether a graph was
// being made.
enum class Fault { kNone, kOfGraph, kOther };
Fault EndFaults();

}  // namespace baton::host_device
