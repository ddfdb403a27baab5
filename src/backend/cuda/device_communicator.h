// A tensor-parallel group of CUDA devices in one process, which read each other's memory. Nothing waits on the host but
// for the other ranks' threads to have enqueued as much: devices wait for each other by events.
//
// Where a device cannot reach another's memory (RTX cards), the driver copies what is summed to it, through the host's
// memory, and the sum is the same, bit for bit.
//
// NCCL, which has such a way, too, is not used: its sums depend on how much is summed at once, which breaks
// `--same-bits`, and it refuses two ranks on one device, where a group can be tested on one.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backend/communicator.h"

namespace baton {

// What is passed to its calls lies in its device's memory, rows 16-byte aligned; counts of sums are multiples of 4, and
// no later sum of a pass is longer than its first.
class DeviceCommunicator : public Communicator {
 public:
  // Before the first call, with the rank's device current: the stream that calls take their place in, which must
  // outlive them. RESOURCE_EXHAUSTED: device memory.
  virtual absl::Status Join(cudaStream_t stream) = 0;
  // The first error since Recover; ABORTED: of another rank. A rank that has one makes no more calls, and its pass must
  // Abort.
  virtual const absl::Status& status() const = 0;
};

// One for each of `devices`, the ranks' in order, which may name a device more than once; any of them may go first.
// UNAVAILABLE: no such device. INVALID_ARGUMENT: more ranks than the kernels take.
absl::StatusOr<std::vector<std::unique_ptr<DeviceCommunicator>>> MakeDeviceCommunicators(std::span<const int> devices);

// Which of the devices do not reach each other's memory, for logs and `--check`: "0 and 1", "0 and 1, and others,";
// empty: all do. UNAVAILABLE: no such device.
absl::StatusOr<std::string> DevicesApart(std::span<const int> devices);

}  // namespace baton
