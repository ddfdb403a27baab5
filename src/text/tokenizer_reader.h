// A reader of a TokenizerSpec from the files of a Hugging Face directory.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "text/tokenizer_spec.h"

namespace baton {

// Reads tokenizer.json and, if present, the added tokens of tokenizer_config.json. Fails with
// NOT_FOUND if there is no tokenizer.json. An INVALID_ARGUMENT error names the file, the position
// and the reason. Refuses features that Baton does not implement, and names them.
absl::StatusOr<TokenizerSpec> ReadTokenizerSpec(const std::string& directory);

}  // namespace baton
