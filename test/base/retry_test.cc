#include "base/retry.h"

#include "catch.h"

namespace baton {
namespace {

TEST_CASE("RetryDelayOf gives every overload a delay, and other errors none") {
  const absl::Duration known = absl::Seconds(7);
  for (const absl::Status& status : {absl::ResourceExhaustedError(""), absl::UnavailableError("")}) {
    CHECK(RetryDelayOf(status, absl::ZeroDuration()) == absl::Seconds(1));
    CHECK(RetryDelayOf(status, known) == known);
  }
  CHECK(RetryDelayOf(absl::InternalError(""), known) == absl::ZeroDuration());
  CHECK(RetryDelayOf(absl::OkStatus(), known) == absl::ZeroDuration());
}

}  // namespace
}  // namespace baton
