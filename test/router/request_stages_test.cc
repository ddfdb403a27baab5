// When a request reaches its stages, as its outcome reports it.
#include "dispatcher_world.h"

namespace baton {
namespace {

TEST_CASE("Dispatcher reports how long a request waited for its session's turn") {
  Driven d(/*shortest_first=*/false, SessionLimits{.sessions = 1, .shortest_linger = {}, .longest_linger = {}});
  ClientRequest first = d.Request("first", "p"), second = d.Request("second", "p");
  first.session = "one";
  second.session = "two";
  const auto running = d.Submit(first), waiting = d.Submit(second);
  REQUIRE((running.ok() && waiting.ok()));
  d.Take();
  d.now += absl::Seconds(3);
  (*d).Cancel(*running, d.now);
  (*d).Tick(d.now);
  d.Take();
  d.now += absl::Seconds(5);
  (*d).Cancel(*waiting, d.now);
  for (const DispatchAction& action : (*d).TakeActions()) {
    if (const auto* ended = std::get_if<RequestEnded>(&action)) {
      CHECK(ended->outcome.session_wait == absl::Seconds(3));
      CHECK(ended->outcome.total == absl::Seconds(8));
    }
  }
}

}  // namespace
}  // namespace baton
