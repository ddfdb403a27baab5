// A reader of the steps around the model in tokenizer.json: normalizer, pre_tokenizer,
// post_processor and decoder.
#pragma once

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "text/tokenizer_spec.h"

namespace baton {

// Fills nfc, split and prompt_prefix of `spec`. Refuses a step that Baton does not implement, and
// names it and its position in the file. REQUIRES: `document` is an object, and spec.tokens is
// filled.
absl::Status ReadPipeline(const nlohmann::json& document, TokenizerSpec& spec);

}  // namespace baton
