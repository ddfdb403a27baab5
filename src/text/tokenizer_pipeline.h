// The steps around the model in tokenizer.json: normalizer, pre_tokenizer, post_processor, decoder.
#pragma once

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "text/tokenizer_spec.h"

namespace baton {

// Fills nfc, split and prompt_prefix. A step that we do not implement is refused by name, with its place in the file.
// REQUIRES: document is an object; spec.tokens is filled.
absl::Status ReadPipeline(const nlohmann::json& document, TokenizerSpec& spec);

}  // namespace baton
