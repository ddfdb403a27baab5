#include "backend/cuda/decode_graphs.h"

#include "catch.h"

namespace baton {
namespace {

TEST_CASE("decode steps are filled up to few sizes, by little") {
  int64_t last = 0;
  int sizes = 0;
  for (int64_t sequences = 1; sequences <= 512; ++sequences) {
    const int64_t rows = DecodeGraphs::RowsFor(sequences);
    INFO(sequences << " sequences, " << rows << " rows");
    CHECK(rows >= sequences);
    CHECK(rows >= last);
    CHECK(rows - sequences <= (sequences <= 8 ? 3 : sequences <= 64 ? 7 : 15));
    sizes += rows != last;
    last = rows;
  }
  CHECK(sizes == 4 + 7 + 28);
}

}  // namespace
}  // namespace baton
