#include "rpc/status_table.h"

#include "base/retry.h"
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

TEST_CASE("StatusTable has a retry delay for exactly the errors that may be retried") {
  for (const StatusRow& row : StatusTable()) {
    CHECK((row.retry == Retry::kAfter) == MayRetry(absl::Status(row.code, "")));
  }
}

}  // namespace
}  // namespace baton
