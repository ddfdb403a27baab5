// The device kind "cuda": computes models on this machine's NVIDIA GPUs.
#pragma once

#include "node/device.h"

namespace baton {

class CudaDevice final : public Device {
 public:
  std::string_view name() const override { return "cuda"; }
  bool is_accelerator() const override { return true; }
  absl::StatusOr<std::vector<int>> Find(const WorkerOptions& options, const ModelConfig& config) const override;
  KvLayout KvLayoutOf(const ModelConfig& config) const override;
  absl::StatusOr<int64_t> BlocksThatFit(const WorkerOptions& options, const Workers& workers,
                                        const LoadedModel& model) const override;
  absl::StatusOr<Slab> MakeSlab(int device, int64_t bytes, Transport& transport) const override;
  absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const LoadedModel& model, const WorkerOptions& options,
                                                       bool lm_head, const Transports& transports) const override;
};

}  // namespace baton
