// What a step costs on a device that is not here: a roofline (Williams et al. 2009) over a model's shape. Every figure
// that comes from it is simulated.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "kv/block_layout.h"
#include "model/batch.h"
#include "model/config.h"

namespace baton {

struct DeviceShape {
  std::string name{};
  double peak_flops = 0;           // a second, of bf16 matrix products, as the vendor says or as measured
  double efficiency = 1;           // share of it that a whole forward pass reaches
  double memory_bytes = 0;         // capacity
  double memory_rate = 0;          // bytes a second
  double network_rate = 0;         // bytes a second out of this device, for hand-offs
  double host_rate = 0;            // bytes a second between this device and the host's memory, either way
  absl::Duration step_overhead{};  // launches, planning, sampling
};

struct StepWork {
  double flops = 0;  // a multiply-add is 2
  double bytes = 0;  // read from and written to memory, at least: weights once, KV as it is attended to
};

// bf16, whatever the checkpoint has.
KvLayout SimulatedKvLayout(const ModelConfig& model);
double WeightBytes(const ModelConfig& model);
// KV blocks beside the weights in nine tenths of the device's memory; 0: the model does not fit.
int64_t BlocksBeside(const ModelConfig& model, const DeviceShape& device);
// What copying so many KV blocks takes, to the host's memory or from it.
absl::Duration CopyTime(const ModelConfig& model, const DeviceShape& device, int64_t blocks);

// As the forward pass computes: the last layer goes on after its keys and values, and the LM head runs, only for
// tokens that logits are wanted of (design idea 1).
StepWork WorkOf(const ModelConfig& model, const Batch& batch);
// max(flops / (peak * efficiency), bytes / memory rate) + overhead.
absl::Duration StepTime(const DeviceShape& device, const StepWork& work);
// Tokens whose arithmetic takes as long as reading the weights: a step of fewer is hardly shorter.
int64_t BalancedTokens(const ModelConfig& model, const DeviceShape& device);

}  // namespace baton
