// A model's checked weights, and its place: the devices that compute it and the KV blocks that fit there.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "model/weights.h"
#include "node/options.h"
#include "text/tokenizer.h"

namespace baton {

class Device;

// The number of workers in a process.
struct Workers {
  int prefill = 0;
  int decode = 0;
  int all() const { return prefill + decode; }
};

struct LoadedModel {
  std::unique_ptr<Weights> weights;
  const Device* device = nullptr;  // the kind of device that computes the model
  std::vector<int> devices{};      // the number of each rank's device; all 0 for the CPU
  StepLimits step{};               // the largest step of any worker in the process
  int64_t blocks = 0;              // that one worker holds
  int64_t block_bytes = 0;         // of the whole model

  // A copy without weights, for another model of the same shape on the same devices.
  LoadedModel Places() const { return {nullptr, device, devices, step, blocks, block_bytes}; }
};

// Loads the model of the options and chooses its devices. Fills in the options that depend on the device.
// UNAVAILABLE: the devices that the options name do not exist, or this build lacks their kind.
// INVALID_ARGUMENT: the options contradict each other, the model or the devices.
absl::StatusOr<LoadedModel> LoadModel(WorkerOptions& options, const Workers& workers);

// The digest of the module whose KV the worker continues: its prefill module, or its own weights.
absl::StatusOr<Digest> KvDigest(const WorkerOptions& options, const LoadedModel& model, const Tokenizer& tokenizer);

}  // namespace baton
