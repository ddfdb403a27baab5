#include "model/unnamed_ids.h"

#include <algorithm>

namespace baton {

std::vector<TokenId> UnnamedIds(const Tokenizer& tokenizer, const ModelConfig& config) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < config.vocab; ++id) {
    const bool ends = std::ranges::find(config.eos_ids, id) != config.eos_ids.end();
    if (!ends && tokenizer.TokenBytes(id).empty()) ids.push_back(id);
  }
  return ids;
}

}  // namespace baton
