#include "router/request_timers.h"

#include "catch.h"

namespace baton {
namespace {

TEST_CASE("RequestTimers returns requests by time, then by id") {
  RequestTimers timers;
  CHECK(timers.Next() == absl::InfiniteFuture());
  CHECK(timers.First() == nullptr);
  Request a, b, c;
  a.id = "a";
  b.id = "b";
  c.id = "c";
  const absl::Time at = absl::UnixEpoch();
  timers.Set(b, at);
  timers.Set(a, at);
  timers.Set(c, at - absl::Seconds(1));
  CHECK(timers.Due(at) == std::vector<Request*>{&c, &a, &b});
  timers.Set(c, at + absl::Seconds(1));
  CHECK(timers.First() == &a);
  CHECK(timers.Due(at) == std::vector<Request*>{&a, &b});
  timers.Clear(a);
  timers.Clear(b);
  CHECK(timers.Next() == at + absl::Seconds(1));
  timers.Set(c, absl::InfiniteFuture());
  CHECK(timers.size() == 0);
}

}  // namespace
}  // namespace baton
