// Checks whether a decoder may continue from the KV of another module (PrefillShare, arXiv
// 2602.12029).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/weights.h"
#include "text/tokenizer.h"

namespace baton {

// The parts of a model that give its KV shape and meaning, besides the weights.
struct ModuleTraits {
  const ModelConfig& config;
  const Tokenizer& tokenizer;
};

// Checks that the two agree in every field that gives KV its shape and meaning. A decoder that was
// fine-tuned from `module` passes. An INVALID_ARGUMENT error names the first field that differs and
// both values.
absl::Status CheckSharesKv(const ModuleTraits& module, const ModuleTraits& decoder);

// Returns the digest of the prefill module in `directory` (ModuleDigest). Reads all weights once
// and keeps none of them in memory. Fails as CheckSharesKv does, with the directory in the message,
// and as the loaders of config, tokenizer and weights do.
absl::StatusOr<Digest> PrefillModuleDigest(const std::string& directory, const ModuleTraits& decoder);

}  // namespace baton
