#include "router/session_window.h"

#include "catch.h"

namespace baton {
namespace {

class Driven {
 public:
  // A session's prefill, of 100 new tokens, that waited for twice as long as it was computed.
  void Run(int times, int64_t again = 0, absl::Duration queued = absl::Seconds(2)) {
    for (int i = 0; i < times; ++i) {
      window.Ran({.computed = 100 + again, .again = again, .queued = queued, .compute = absl::Seconds(1)}, active,
                 sessions_wait);
    }
  }

  SessionWindow window;
  int64_t active = 100;
  bool sessions_wait = true;
};

TEST_CASE("there is no bound while sessions find their KV, or lose less than is new") {
  Driven d;
  d.Run(1000);
  d.Run(1000, 99);
  CHECK(d.window.size() == SessionWindow::kUnbounded);
}

TEST_CASE("the share that lost its KV is what becomes too many") {
  Driven d;
  d.Run(24);
  d.Run(8, 2000);
  CHECK(d.window.size() == 75);
}

TEST_CASE("one in thirty-two is no congestion") {
  Driven d;
  for (int round = 0; round < 10; ++round) {
    d.Run(31);
    d.Run(1, 2000);
  }
  CHECK(d.window.size() == SessionWindow::kUnbounded);
}

TEST_CASE("where prefill workers have time to compute it again, nothing is reduced") {
  Driven d;
  d.Run(1000, 2000, absl::Milliseconds(900));
  CHECK(d.window.size() == SessionWindow::kUnbounded);
}

TEST_CASE("after a change as many prefills as there are sessions are left out") {
  Driven d;
  d.Run(32, 2000);
  CHECK(d.window.size() == 1);
  d.active = 40;
  d.Run(100, 2000);  // the 100 that were active
  CHECK(d.window.size() == 1);
  d.Run(32);
  CHECK(d.window.size() == 2);
}

TEST_CASE("it grows by a 64th while sessions wait, and not while none does") {
  Driven d;
  d.Run(24);
  d.Run(8, 2000);
  d.active = 75;
  d.sessions_wait = false;
  d.Run(1000);
  CHECK(d.window.size() == 75);
  d.sessions_wait = true;
  d.Run(32);
  CHECK(d.window.size() == 76);
  d.Run(75 + 32);
  CHECK(d.window.size() == 77);
}

TEST_CASE("of few sessions, a round has as many prefills as there are") {
  Driven d;
  d.active = 4;
  d.Run(3);
  d.Run(1, 2000);
  CHECK(d.window.size() == 3);
}

}  // namespace
}  // namespace baton
