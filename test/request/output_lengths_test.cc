#include "request/output_lengths.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "catch.h"

namespace baton {
namespace {

void LearnMany(OutputLengths& lengths, const OutputSource& source, int64_t tokens, int outputs = 100) {
  for (int i = 0; i < outputs; ++i) lengths.Learn(source, tokens, /*cut_off=*/false);
}

TEST_CASE("OutputLengths expects the mean of the agent, its cache domain, or the prior") {
  OutputLengths lengths;
  const OutputSource judge{"t", "m", "judge"}, writer{"t", "m", "writer"}, nameless{"t", "m"};
  CHECK(lengths.Expect(judge) == OutputLengths::kPrior);
  lengths.Learn(judge, 10, false);
  lengths.Learn(judge, 20, false);
  CHECK(lengths.Expect(judge) == 15);
  CHECK(lengths.Expect(writer) == 15);  // of the cache domain
  LearnMany(lengths, writer, 900);
  CHECK(lengths.Expect(judge) == 15);
  CHECK(lengths.Expect(writer) == 900);
  CHECK(lengths.Expect(nameless) >= 850);
}

TEST_CASE("OutputLengths learns nothing from other cache domains and models") {
  OutputLengths lengths;
  LearnMany(lengths, {"t", "m", "judge"}, 9);
  for (const OutputSource& other : {OutputSource{"u", "m", "judge"}, {"t", "n", "judge"}, {"", "m", "judge"}}) {
    CHECK(lengths.Expect(other) == OutputLengths::kPrior);
  }
}

TEST_CASE("OutputLengths follows a change within some outputs") {
  OutputLengths lengths;
  const OutputSource source{"t", "m"};
  LearnMany(lengths, source, 1000);
  LearnMany(lengths, source, 10, 80);
  CHECK(lengths.Expect(source) <= 20);
  LearnMany(lengths, source, 1000, 60);  // an output counts at most four times the mean
  CHECK(lengths.Expect(source) >= 900);
}

TEST_CASE("OutputLengths changes little when one output runs to the end of the context") {
  OutputLengths lengths;
  const OutputSource source{"t", "m"};
  LearnMany(lengths, source, 100);
  lengths.Learn(source, 1'000'000, true);
  CHECK(lengths.Expect(source) <= 120);
}

TEST_CASE("OutputLengths takes an output that was cut off as a lower bound") {
  OutputLengths lengths;
  const OutputSource source{"t", "m"};
  lengths.Learn(source, 4, true);  // shorter than the prior
  CHECK(lengths.Expect(source) == OutputLengths::kPrior);
  LearnMany(lengths, source, 50);
  lengths.Learn(source, 4, true);
  CHECK(lengths.Expect(source) == 50);
  lengths.Learn(source, 82, true);
  CHECK(lengths.Expect(source) == 52);
}

TEST_CASE("OutputLengths ignores empty outputs and stays in range at extremes") {
  OutputLengths lengths;
  const OutputSource source{"t", "m"};
  lengths.Learn(source, 0, false);
  lengths.Learn(source, -5, false);
  CHECK(lengths.sources() == 0);
  lengths.Learn(source, std::numeric_limits<int32_t>::max(), false);
  CHECK(lengths.Expect(source) == std::numeric_limits<int32_t>::max());
  LearnMany(lengths, source, 1, 1000);
  CHECK(lengths.Expect(source) == 1);
}

TEST_CASE("OutputLengths drops the source that learned least recently when full") {
  OutputLengths lengths(10);
  for (int i = 0; i < 1000; ++i) {
    lengths.Learn({"hostile", "m", absl::StrCat(i)}, 7, false);
    lengths.Learn({"t", "m"}, 40, false);
    CHECK(lengths.sources() <= 10);
  }
  CHECK(lengths.Expect({"t", "m"}) == 40);
  CHECK(lengths.Expect({"hostile", "m", "0"}) == 7);  // of the cache domain
}

TEST_CASE("ExpectedLeft doubles the expectation when an output outgrows it") {
  CHECK(ExpectedLeft(100, 0, 1000) == 100);
  CHECK(ExpectedLeft(100, 99, 1000) == 1);
  CHECK(ExpectedLeft(100, 100, 1000) == 100);
  CHECK(ExpectedLeft(100, 399, 1000) == 1);
  CHECK(ExpectedLeft(100, 900, 1000) == 100);  // up to the limit
  CHECK(ExpectedLeft(1, 4000, 8192) == 96);
  CHECK(ExpectedLeft(100, 20, 50) == 30);
  CHECK(ExpectedLeft(100, 50, 50) == 0);
  CHECK(ExpectedLeft(100, 60, 50) == 0);
  CHECK(ExpectedLeft(0, 0, 10) == 1);
  CHECK(ExpectedLeft(-3, 2, 10) == 2);
  CHECK(ExpectedLeft(3, std::numeric_limits<int32_t>::max() - 1, std::numeric_limits<int32_t>::max()) == 1);
}

}  // namespace
}  // namespace baton
