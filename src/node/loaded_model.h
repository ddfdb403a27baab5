// A model with its checked weights, its devices and the size of its KV memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "base/ids.h"
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
  const Device* device = nullptr;  // kind of all devices of the model
  std::vector<int> devices{};      // number of each rank's device; all 0 for the CPU
  StepLimits step{};               // largest step of any worker in the process
  int64_t blocks = 0;              // per worker
  int64_t block_bytes = 0;         // summed over all ranks
  std::vector<TokenId> unnamed{};  // ids that a decode worker never samples; set by LoadTokenizer

  // Returns a copy without weights, for another model of the same shape on the same devices.
  LoadedModel Places() const { return {nullptr, device, devices, step, blocks, block_bytes, {}}; }
};

// Loads the model that the options name and chooses its devices. Sets the options that depend on
// the device. Returns UNAVAILABLE if the named devices do not exist or this build lacks their kind.
// Returns INVALID_ARGUMENT if the options contradict each other, the model or the devices.
absl::StatusOr<LoadedModel> LoadModel(WorkerOptions& options, const Workers& workers);

// Loads the tokenizer of a decode worker's model, whose directory is `directory`. Sets
// `model.unnamed` (UnnamedIds), and logs the number of these ids if there are any.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& directory, LoadedModel& model);

// Returns the digest of the module whose KV the worker continues. This is the module of
// --prefill-module, or else the worker's own weights.
absl::StatusOr<Digest> KvDigest(const WorkerOptions& options, const LoadedModel& model, const Tokenizer& tokenizer);

}  // namespace baton
