#include "frontend/grpc/call_deadline.h"

#include "catch.h"

namespace baton {

TEST_CASE("EndOf counts a call that ends near its deadline as one that passed it") {
  const struct {
    absl::Duration allowed, left;
    CallEnd end;
  } rows[] = {
      {absl::Seconds(10), absl::Seconds(-1), CallEnd::kDeadline},
      {absl::Seconds(10), absl::Milliseconds(100), CallEnd::kDeadline},
      {absl::Seconds(10), absl::Milliseconds(101), CallEnd::kCancelled},
      {absl::Milliseconds(20), absl::Milliseconds(5), CallEnd::kDeadline},
      {absl::Milliseconds(20), absl::Milliseconds(6), CallEnd::kCancelled},
      {absl::Seconds(-1), absl::Seconds(-1), CallEnd::kDeadline},
      {absl::InfiniteDuration(), absl::InfiniteDuration(), CallEnd::kCancelled},
  };
  for (const auto& [allowed, left, end] : rows) {
    INFO(allowed << " " << left);
    CHECK(EndOf(allowed, left) == end);
  }
}

}  // namespace baton
