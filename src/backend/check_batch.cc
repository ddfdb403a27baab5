#include "backend/check_batch.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kv/block_layout.h"

namespace baton {
namespace {

// Returns true if all blocks are below `count`. The loop has no early exit, so that it vectorises:
// a batch of long histories names tens of thousands of blocks.
bool AreBelow(std::span<const BlockId> blocks, int64_t count) {
  const auto end = static_cast<uint32_t>(std::min<int64_t>(count, std::numeric_limits<uint32_t>::max()));
  uint32_t beyond = 0;
  for (const BlockId block : blocks) beyond |= static_cast<uint32_t>(block.value() >= end);
  return beyond == 0;
}

}  // namespace

void CheckBatch(const Batch& batch, const ModelConfig& config, int64_t block_count) {
  for (const SequenceSlice& slice : batch.slices) {
    BATON_CHECK(!slice.tokens.empty() && slice.start >= 0, "a slice has no tokens or starts below 0");
    const int64_t end = slice.start + static_cast<int64_t>(slice.tokens.size());
    BATON_CHECK(end <= config.context,
                absl::StrCat("a slice ends at ", end, ", the context length is ", config.context));
    BATON_CHECK(static_cast<int64_t>(slice.blocks.size()) >= BlocksFor(end), "a block table is shorter than its slice");
    for (const TokenId token : slice.tokens) {
      BATON_CHECK(token >= 0 && token < config.vocab, absl::StrCat("token ", token, " of vocabulary ", config.vocab));
    }
    BATON_CHECK(AreBelow(slice.blocks, block_count), absl::StrCat("a block table names a block beyond ", block_count));
  }
}

}  // namespace baton
