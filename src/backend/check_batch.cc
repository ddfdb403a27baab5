#include "backend/check_batch.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kv/block_layout.h"

namespace baton {

void CheckBatch(const Batch& batch, const ModelConfig& config, int64_t block_count) {
  for (const SequenceSlice& slice : batch.slices) {
    BATON_CHECK(!slice.tokens.empty() && slice.start >= 0, "a slice has tokens and starts at a position");
    const int64_t end = slice.start + static_cast<int64_t>(slice.tokens.size());
    BATON_CHECK(end <= config.context, absl::StrCat("a slice ends at ", end, ", the context at ", config.context));
    BATON_CHECK(static_cast<int64_t>(slice.blocks.size()) >= BlocksFor(end), "a block table covers its slice");
    for (const TokenId token : slice.tokens) {
      BATON_CHECK(token >= 0 && token < config.vocab, absl::StrCat("token ", token, " of vocabulary ", config.vocab));
    }
    for (const BlockId block : slice.blocks) {
      BATON_CHECK(block.value() < block_count, absl::StrCat("block ", block.value(), " of ", block_count));
    }
  }
}

}  // namespace baton
