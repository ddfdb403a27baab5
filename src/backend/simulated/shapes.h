// Models and devices that simulations know by name.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "backend/simulated/cost_model.h"

namespace baton {

// qwen2.5-7b, qwen2.5-32b, qwen3-14b, llama-3.1-8b, smollm2-135m: as in their config.json. INVALID_ARGUMENT names the
// known ones.
absl::StatusOr<ModelConfig> ModelNamed(std::string_view name);

// a100: 312 TFLOP/s bf16 and 80 GB at 2.0 TB/s (NVIDIA's data sheet, SXM), hand-off over 200 Gb/s, 20 GB/s to and from
// the host. h200: 141 GB; 790 TFLOP/s and 4.3 TB/s as measured by large products and copies, hand-off over 400 Gb/s,
// 40 GB/s to and from the host. These last are assumed to be about five eighths of PCIe's 32 and 64 GB/s.
// Efficiency, 0.6 of the A100's data sheet and 0.75 of what was measured, is an assumption.
absl::StatusOr<DeviceShape> DeviceNamed(std::string_view name);

}  // namespace baton
