#include "transport/block_copies.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "catch.h"

namespace baton {
namespace {

TEST_CASE("Coalesce joins copies that are neighbours on both sides") {
  const std::vector<BlockCopy> copies = {{0, 100, 10}, {10, 110, 10}, {20, 200, 10}, {40, 210, 10}, {50, 220, 5}};
  const std::vector<BlockCopy> runs = Coalesce(copies);
  REQUIRE(runs.size() == 3);
  CHECK(CountRuns(copies) == 3);
  CHECK(CountRuns({}) == 0);
  CHECK(runs[0].bytes == 20);
  CHECK(runs[1].source_offset == 20);
  CHECK(runs[1].bytes == 10);
  CHECK(runs[2].source_offset == 40);
  CHECK(runs[2].target_offset == 210);
  CHECK(runs[2].bytes == 15);
}

TEST_CASE("CheckCopies refuses a copy outside either slab") {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  const auto check = [](BlockCopy copy) { return CheckCopies(std::vector<BlockCopy>{copy}, 100, 50).code(); };
  CHECK(check({0, 0, 50}) == absl::StatusCode::kOk);
  CHECK(check({50, 0, 50}) == absl::StatusCode::kOk);
  for (const BlockCopy copy :
       {BlockCopy{0, 1, 50}, BlockCopy{51, 0, 50}, BlockCopy{-1, 0, 1}, BlockCopy{0, -1, 1}, BlockCopy{0, 0, 0},
        BlockCopy{0, 0, -1}, BlockCopy{huge, 0, 10}, BlockCopy{0, huge, 10}, BlockCopy{10, 10, huge}}) {
    CAPTURE(copy.source_offset, copy.target_offset, copy.bytes);
    CHECK(check(copy) == absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace baton
