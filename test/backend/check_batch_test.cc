#include "backend/check_batch.h"

#include <functional>
#include <string>
#include <vector>

#include "catch.h"
#include "child_process.h"

namespace baton {
namespace {

constexpr int64_t kBlocks = 4;

ModelConfig Config() {
  ModelConfig config;
  config.vocab = 100;
  config.context = 48;
  return config;
}

// A slice at positions 30 to 32, which needs three blocks of 16.
struct OneSlice {
  std::vector<TokenId> tokens = {0, 99, 5};
  std::vector<BlockId> blocks = {BlockId(0), BlockId(3), BlockId(1)};
  int32_t start = 30;

  void Check() const {
    CheckBatch(Batch{.slices = {{.tokens = tokens, .start = start, .blocks = blocks}}}, Config(), kBlocks);
  }
};

}  // namespace

TEST_CASE("CheckBatch accepts a batch within the limits of model and pool") {
  OneSlice slice;
  slice.Check();
  slice.start = 45;  // the slice ends at the context length
  slice.Check();
  CheckBatch(Batch{}, Config(), kBlocks);
}

TEST_CASE("CheckBatch ends the process with a reason when a batch exceeds a limit") {
  const struct {
    std::function<void(OneSlice&)> damage;
    std::string reason;
  } cases[] = {
      {[](OneSlice& slice) { slice.tokens.clear(); }, "a slice has no tokens or starts below 0"},
      {[](OneSlice& slice) { slice.start = -1; }, "a slice has no tokens or starts below 0"},
      {[](OneSlice& slice) { slice.start = 46; }, "a slice ends at 49, the context length is 48"},
      {[](OneSlice& slice) { slice.blocks.pop_back(); }, "a block table is shorter than its slice"},
      {[](OneSlice& slice) { slice.tokens[1] = 100; }, "token 100 of vocabulary 100"},
      {[](OneSlice& slice) { slice.tokens[1] = -1; }, "token -1 of vocabulary 100"},
      {[](OneSlice& slice) { slice.blocks[0] = BlockId(kBlocks); }, "a block table names a block beyond 4"},
  };
  for (const auto& [damage, reason] : cases) {
    INFO(reason);
    OneSlice slice;
    damage(slice);
    const ChildEnd end = RunInChild([&] { slice.Check(); });
    CHECK(end.aborted);
    CHECK(end.stderr_text.find(reason) != std::string::npos);
  }
}

}  // namespace baton
