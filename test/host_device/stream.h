// A CUDA device that is the host: the functions of the runtime, of cuBLASLt and the launchers of kernels/ that the CUDA
// backend calls, as plain code. A program that has these needs no GPU, so what the backend's host code does can be
// tested where there is none, and so can the references that kernels are compared with. It says nothing of the kernels,
// nor of time.
//
// What is enqueued runs when somebody waits for it and no sooner, so that the host's side of a copy that is changed or
// freed too early shows; with HOST_DEVICE_RUNS=at_once in the environment it runs where it is enqueued, so that what is
// filled too late shows. New memory is full of 0xff, NaN; who touches it once it is freed crashes, as who reads or
// writes beyond its last page, and what is written beside it in its own pages shows when it is freed. Kernels are given
// memory of the current device alone, or of one whose memory it was let reach, and a copy's ends lie where its kind
// says. While a graph is captured nothing may be allocated, freed or waited for.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <initializer_list>

namespace baton::host_device {

// A launch: says, as kernels' launchers do, what went wrong since somebody asked last. All of this takes place under
// one lock. What is for no stream is done at once.
cudaError_t Enqueue(cudaStream_t stream, std::function<void()> work);

// While it lives there are so many devices, which share what one has of memory; else there is one.
struct Devices {
  Devices(int count, bool reach_each_other);
  ~Devices();
};

// Dies where one of them, but for null, is no memory of the current device, nor of one that it reaches.
void CheckOnDevice(std::initializer_list<const void*> pointers);

// The number of graph launches so far.
int64_t GraphLaunches();

// How many times cuBLASLt was asked for algorithms so far. A product whose algorithm is chosen does
// not ask.
int64_t Suggestions();

// Of the calls that take memory, enqueue something or make a graph, the one after so many more is refused; `for_good`:
// and all that come then, and whoever waits hears of it, as when a device has failed.
void FailAfter(int64_t calls, bool for_good = false);
// Whether one has been refused since, and while a graph was made. Nothing fails any more.
enum class Fault { kNone, kOfGraph, kOther };
Fault EndFaults();

}  // namespace baton::host_device
