// The rows of a model's vocabulary that stand for no token. Checkpoints often pad the vocabulary
// beyond the tokenizer's tokens: Qwen2.5 has 151,936 rows and 151,665 tokens.
#pragma once

#include <vector>

#include "base/ids.h"
#include "model/config.h"
#include "text/tokenizer.h"

namespace baton {

// Returns the ids in [0, config.vocab) for which the tokenizer has no token, ascending. They are
// never sampled, and requests cannot contain them. An end-of-sequence id is not among them, because
// it ends the output even if it has no text. With ignore_eos, an output may contain such an id.
std::vector<TokenId> UnnamedIds(const Tokenizer& tokenizer, const ModelConfig& config);

}  // namespace baton
