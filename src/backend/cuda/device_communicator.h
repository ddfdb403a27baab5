// A tensor-parallel group of CUDA devices in one process, which read each other's memory.
//
// The host waits only until the other ranks' threads have enqueued the same call. Devices wait for
// each other by events. If a device cannot reach another device's memory (RTX cards), the driver
// copies the operands of a sum through the host's memory. The sum has the same bits.
//
// NCCL is not used, for two reasons. Its sums depend on the number of elements that it sums at
// once, which breaks `--same-bits`. It also refuses two ranks on one device, so a group could not
// be tested on one device.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backend/communicator.h"

namespace baton {

// A communicator whose pointers are addresses in its device's memory. Rows are 16-byte aligned. The
// counts of sums are multiples of 4. REQUIRES: in a pass, no sum is longer than the first one. The
// buffers do not grow while other ranks may read them.
class DeviceCommunicator : public Communicator {
 public:
  // Sets the stream in which calls are enqueued, before the first call. The stream must outlive all
  // calls. REQUIRES: the rank's device is current. RESOURCE_EXHAUSTED: out of device memory.
  virtual absl::Status Join(cudaStream_t stream) = 0;
  // Returns the first error since Recover. ABORTED: another rank gave up. After an error, the rank
  // must not make further calls, and its pass must call Abort.
  virtual const absl::Status& status() const = 0;
};

// Returns one communicator for each of `devices`, in order of rank. A device may appear more than
// once. The communicators may be destroyed in any order. UNAVAILABLE: no such device.
// INVALID_ARGUMENT: more ranks than the kernels support.
absl::StatusOr<std::vector<std::unique_ptr<DeviceCommunicator>>> MakeDeviceCommunicators(std::span<const int> devices);

// Describes the devices that do not reach each other's memory, for logs and `--check`. Examples: "0
// and 1", or "0 and 1, and other pairs,". Empty if all devices reach each other. UNAVAILABLE: no
// such device.
absl::StatusOr<std::string> DevicesApart(std::span<const int> devices);

}  // namespace baton
