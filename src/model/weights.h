// A model's tensors as views into memory-mapped safetensors, checked against the config and not yet packed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/sha256.h"
#include "model/config.h"
#include "model/layer_tensors.h"

namespace baton {

// Keeps the mapped files open.
class Weights : public ModelTensors {
 public:
  virtual ~Weights() = default;
  ModelConfig config;
  std::vector<LayerWeights> layers;
  // SHA-256 over the config's computing fields and all tensor bytes: the identity of the KV this module makes (design
  // 3).
  Digest digest{};
};

// Maps model.safetensors, or the shards that model.safetensors.index.json lists. Every error names file, tensor and
// reason and comes before any allocation that a hostile header could size.
absl::StatusOr<std::unique_ptr<Weights>> LoadWeights(const std::string& directory);

struct NamedTensor {
  std::string name;      // as in the module digest: "embedding", "0.q"
  const Tensor* tensor;  // of the Weights
};

// Every tensor that a device holds, once, in the order of the digest. The LM head of a model with
// tied embeddings is listed only for a rank that has a part of it.
std::vector<NamedTensor> TensorsOf(const Weights& weights);

}  // namespace baton
