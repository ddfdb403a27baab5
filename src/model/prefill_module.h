// The module whose KV a decoder goes on from, where that is not the decoder itself: PrefillShare (arXiv 2602.12029).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/weights.h"
#include "text/tokenizer.h"

namespace baton {

// INVALID_ARGUMENT names the first field in which the two differ, with both values: a decoder that was fine-tuned from
// the module agrees with it in all that gives KV its shape and meaning.
struct ModuleTraits {
  const ModelConfig& config;
  const Tokenizer& tokenizer;
};
absl::Status CheckSharesKv(const ModuleTraits& module, const ModuleTraits& decoder);

// The identity of the KV that the module in `directory` makes, for this decoder. Reads all of its weights once and
// keeps nothing. INVALID_ARGUMENT as above, with the directory; or as the loaders say.
absl::StatusOr<Digest> PrefillModuleDigest(const std::string& directory, const ModuleTraits& decoder);

}  // namespace baton
