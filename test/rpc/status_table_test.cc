#include "rpc/status_table.h"

#include "catch.h"

namespace baton {
namespace {

TEST_CASE("StatusTable has one row for each code in order") {
  int code = 0;
  for (const StatusRow& row : StatusTable()) CHECK(static_cast<int>(row.code) == ++code);
  CHECK(code == 16);
  CHECK(StatusRowOf(absl::StatusCode::kUnavailable).http == 503);
  CHECK(StatusRowOf(static_cast<absl::StatusCode>(99)).code == absl::StatusCode::kUnknown);
}

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
