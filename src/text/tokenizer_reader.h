// From the files of a Hugging Face directory to a TokenizerSpec.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "text/tokenizer_spec.h"

namespace baton {

// Reads tokenizer.json and, where present, the added tokens of tokenizer_config.json. NOT_FOUND without tokenizer.json;
// INVALID_ARGUMENT names file, place and reason; what we do not implement is refused by name.
absl::StatusOr<TokenizerSpec> ReadTokenizerSpec(const std::string& directory);

}  // namespace baton
