// The interface of a kind of device that computes models. device_registry.cc lists the kinds of a
// build.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "node/loaded_model.h"
#include "node/options.h"
#include "transport/transport.h"

namespace baton {

using Transports = std::vector<std::unique_ptr<Transport>>;  // one per rank

class Device {
 public:
  virtual ~Device() = default;
  // The name of the kind in --device, such as "cuda".
  virtual std::string_view name() const = 0;
  // Returns whether the device has memory of its own. Its KV then needs no shared memory, and its
  // steps are larger.
  virtual bool is_accelerator() const = 0;
  // Returns the number of each rank's device. If the options name no devices, selects the most
  // suitable ones. Returns UNAVAILABLE if the devices do not exist. Returns INVALID_ARGUMENT if
  // they cannot run the model, or if --tensor-parallel differs from their number.
  virtual absl::StatusOr<std::vector<int>> Find(const WorkerOptions& options, const ModelConfig& config) const = 0;
  // Returns the layout of a model's KV in this device's blocks.
  virtual KvLayout KvLayoutOf(const ModelConfig& config) const = 0;
  // Returns the number of KV blocks that each worker may hold, from the options and the free memory
  // of the devices. REQUIRES: `model.devices`, `model.step` and `model.block_bytes` are set.
  virtual absl::StatusOr<int64_t> BlocksThatFit(const WorkerOptions& options, const Workers& workers,
                                                const LoadedModel& model) const = 0;
  // Allocates `bytes` of memory on one device. The transport registers the memory and owns it.
  virtual absl::StatusOr<Slab> MakeSlab(int device, int64_t bytes, Transport& transport) const = 0;
  // Makes a backend. Allocates a slab for its KV in the transport of each rank. With `lm_head`, the
  // backend computes logits.
  virtual absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const LoadedModel& model, const WorkerOptions& options,
                                                               bool lm_head, const Transports& transports) const = 0;
};

// Returns the kinds of this build, in the order in which --device auto tries them. The CPU is the
// last.
std::span<const Device* const> Devices();

}  // namespace baton
