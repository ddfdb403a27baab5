// The kinds of devices that compute models. device_registry.cc lists the kinds of a build.
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

using Transports = std::vector<std::unique_ptr<Transport>>;  // one for each rank

class Device {
 public:
  virtual ~Device() = default;
  // The word of --device, such as "cuda".
  virtual std::string_view name() const = 0;
  // Memory and steps of its own, beside the host's: KV needs no shared memory, and steps are large.
  virtual bool is_accelerator() const = 0;
  // Returns the number of each rank's device, as the options name them, or those that suit best. UNAVAILABLE: there are
  // no such devices. INVALID_ARGUMENT: they cannot run the model, or are not as many as --tensor-parallel.
  virtual absl::StatusOr<std::vector<int>> Find(const WorkerOptions& options, const ModelConfig& config) const = 0;
  // How the KV of a model lies in this device's blocks.
  virtual KvLayout KvLayoutOf(const ModelConfig& config) const = 0;
  // Returns the number of KV blocks that one of the workers may hold, by the options and by what the devices have free.
  // REQUIRES: model.devices, model.step and model.block_bytes are set.
  virtual absl::StatusOr<int64_t> BlocksThatFit(const WorkerOptions& options, const Workers& workers,
                                                const LoadedModel& model) const = 0;
  // Memory of `bytes` on one device, which the transport moves and keeps.
  virtual absl::StatusOr<Slab> MakeSlab(int device, int64_t bytes, Transport& transport) const = 0;
  // A backend whose KV lies in such slabs, one in the transport of each rank. `lm_head`: it makes logits.
  virtual absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const LoadedModel& model, const WorkerOptions& options,
                                                               bool lm_head, const Transports& transports) const = 0;
};

// The kinds that this build has, in the order in which --device auto tries them. The CPU is the last.
std::span<const Device* const> Devices();

}  // namespace baton
