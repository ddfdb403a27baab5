// The models and devices that simulations can name.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "backend/simulated/cost_model.h"

namespace baton {

// The shape of a model, with the values of its config.json. Names: qwen2.5-7b, qwen2.5-32b,
// qwen3-14b, llama-3.1-8b, smollm2-135m. INVALID_ARGUMENT lists the names.
absl::StatusOr<ModelConfig> ModelNamed(std::string_view name);

// The speed and size of a device, by name. INVALID_ARGUMENT lists the names.
//
// - a100: 312 TFLOP/s bf16, and 80 GB at 2.0 TB/s (NVIDIA's data sheet, SXM). Hand-offs run over
//   200 Gb/s. Copies to and from the host run at 20 GB/s.
// - h200: 141 GB, with 790 TFLOP/s and 4.3 TB/s, as measured with large products and copies.
//   Hand-offs run over 400 Gb/s. Copies to and from the host run at 40 GB/s.
// - cpu: two cores with AVX2.
//
// The rates to and from the host are assumptions: about five eighths of PCIe's 32 and 64 GB/s. The
// efficiencies are assumptions, too: 0.6 of the A100's data sheet, and 0.75 of the H200's measured
// rate.
absl::StatusOr<DeviceShape> DeviceNamed(std::string_view name);

}  // namespace baton
