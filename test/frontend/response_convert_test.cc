#include "frontend/response_convert.h"

#include "base/strings.h"
#include "catch.h"

namespace baton {
namespace {

TEST_CASE("ToFinal sets the field of each stage of the table") {
  RequestOutcome outcome;
  int ms = 0;
  for (const StageRow& stage : kStageTable) outcome.times.*stage.time = absl::Milliseconds(++ms);
  const v1::Timings timings = ToFinal(outcome).timings();
  ms = 0;
  for (const StageRow& stage : kStageTable) {
    INFO(stage.name);
    const auto* field = v1::Timings::descriptor()->FindFieldByName(StrCat(stage.name, "_ms"));
    REQUIRE(field != nullptr);
    CHECK(v1::Timings::GetReflection()->GetDouble(timings, field) == ++ms);
  }
}

}  // namespace
}  // namespace baton
