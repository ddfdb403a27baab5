// The tensors of a model, as views into memory-mapped safetensors files. They are checked against
// the config and not packed for a device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/sha256.h"
#include "model/config.h"
#include "model/layer_tensors.h"

namespace baton {

// The weights of a model. LoadWeights returns an object that also keeps the files mapped.
class Weights : public ModelTensors {
 public:
  virtual ~Weights() = default;
  ModelConfig config;
  std::vector<LayerWeights> layers;
  // ModuleDigest of the whole model. It identifies the KV that the model computes (design section
  // 3).
  Digest digest{};
};

// Maps model.safetensors, or the files that model.safetensors.index.json lists. Every error names
// the file, the tensor and the reason. No allocation has a size that a hostile header could choose.
absl::StatusOr<std::unique_ptr<Weights>> LoadWeights(const std::string& directory);

struct NamedTensor {
  std::string name;      // as in the module digest: "embedding", "0.q"
  const Tensor* tensor;  // a member of the Weights
};

// Returns every tensor that a device holds, once each, in the order of the digest. With tied
// embeddings, the LM head of the whole model is not listed, because it is the embedding. The LM
// head of a rank with a part of the vocabulary is listed (see ShardWeights).
std::vector<NamedTensor> TensorsOf(const Weights& weights);

}  // namespace baton
