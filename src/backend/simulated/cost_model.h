// The estimated cost of a step on a device that is not present: a roofline (Williams et al. 2009)
// over a model's shape. Every figure that comes from it is simulated.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "kv/block_layout.h"
#include "model/batch.h"
#include "model/config.h"

namespace baton {

// The speed and the size of a device. Rates are per second.
struct DeviceShape {
  std::string name{};
  // bf16 matrix products, from the vendor's data sheet or measured.
  double peak_flops = 0;
  // Share of peak_flops that a whole forward pass reaches.
  double efficiency = 1;
  // Capacity of the device's memory.
  double memory_bytes = 0;
  // Bytes per second of the device's memory.
  double memory_rate = 0;
  // Bytes per second that leave this device for hand-offs.
  double network_rate = 0;
  // Bytes per second between this device and the host's memory, in either direction.
  double host_rate = 0;
  // Launches, planning and sampling of one step.
  absl::Duration step_overhead{};
};

// The work of one step.
struct StepWork {
  // A multiply-add counts as 2.
  double flops = 0;
  // Bytes that the step at least reads from and writes to memory. Weights count once. KV counts
  // once for each slice that attends to it.
  double bytes = 0;
};

// The KV is bf16, whatever dtype the checkpoint has.
KvLayout SimulatedKvLayout(const ModelConfig& model);
// Bytes of the model's weights in bf16.
double WeightBytes(const ModelConfig& model);
// KV blocks that fit beside the weights into nine tenths of the device's memory. 0 if the model
// does not fit.
int64_t BlocksBeside(const ModelConfig& model, const DeviceShape& device);
// Time to copy `blocks` KV blocks to the host's memory or from it.
absl::Duration CopyTime(const ModelConfig& model, const DeviceShape& device, int64_t blocks);

// The work of the batch as the forward pass does it. In the last layer, only tokens whose logits
// are wanted go on after their K and V are stored. The LM head runs only for these tokens (design
// idea 1).
StepWork WorkOf(const ModelConfig& model, const Batch& batch);
// max(flops / (peak * efficiency), bytes / memory rate) + overhead.
absl::Duration StepTime(const DeviceShape& device, const StepWork& work);
// The fixed cost of a step, as in backend/fixed_cost.h.
double FixedTokens(const ModelConfig& model, const DeviceShape& device);

}  // namespace baton
