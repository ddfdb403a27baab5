#include "router/session_window.h"

#include "catch.h"

namespace baton {
namespace {

class DrivenWindow {
 public:
  // Runs prefills that, by default, waited for twice as long as they were computed.
  void Run(int times, bool lost = false, absl::Duration queued = absl::Seconds(2), bool had_kv = true) {
    for (int i = 0; i < times; ++i) {
      window.AddPrefill(
          {.had_kv = had_kv, .lost = lost, .queued = queued, .compute = absl::Seconds(1), .copied = copied}, sessions);
    }
  }

  SessionWindow window;
  absl::Duration copied;  // of each prefill
  SessionWindow::Sessions sessions{.active = 100, .fit = 10, .some_wait = true};
};

TEST_CASE("SessionWindow has no bound while sessions find their KV") {
  DrivenWindow d;
  d.Run(1000);
  CHECK(d.window.size() == SessionWindow::kUnbounded);
}

TEST_CASE("SessionWindow needs more than one lost prefill in 32") {
  DrivenWindow d;
  for (int round = 0; round < 10; ++round) {
    d.Run(31);
    d.Run(1, /*lost=*/true);
  }
  CHECK(d.window.size() == SessionWindow::kUnbounded);
  d.Run(30);
  d.Run(2, /*lost=*/true);
  CHECK(d.window.size() == 50);
}

TEST_CASE("SessionWindow ignores lost KV when prefills do not wait") {
  DrivenWindow d;
  d.Run(1000, /*lost=*/true, absl::Milliseconds(900));
  CHECK(d.window.size() == SessionWindow::kUnbounded);
}

TEST_CASE("SessionWindow falls before KV is lost when prefills wait too long") {
  constexpr absl::Duration kFull = absl::Milliseconds(8001), kNot = absl::Seconds(8);
  DrivenWindow d;
  SECTION("the window halves, falls by eighths, and rises when prefills wait less") {
    d.Run(64, /*lost=*/false, kNot);
    CHECK(d.window.size() == SessionWindow::kUnbounded);
    d.Run(32, /*lost=*/false, kFull);
    CHECK(d.window.size() == 50);
    d.sessions.active = 50;
    d.Run(100 + 32, /*lost=*/false, kFull);
    CHECK(d.window.size() == 44);
    d.sessions.active = 44;
    d.Run(50 + 32, /*lost=*/false, kFull);
    CHECK(d.window.size() == 39);
    d.sessions.active = 39;
    d.Run(44 + 32, /*lost=*/false, kNot);
    CHECK(d.window.size() == 40);
  }
  SECTION("the window stays when all KV should fit") {
    d.sessions.fit = 50;  // in half of memory
    d.Run(1000, /*lost=*/false, kFull);
    CHECK(d.window.size() == SessionWindow::kUnbounded);
    d.sessions.fit = 49;
    d.Run(32, /*lost=*/false, kFull);
    CHECK(d.window.size() == 50);
  }
}

TEST_CASE("SessionWindow counts host memory while copies are cheap") {
  constexpr absl::Duration kFull = absl::Seconds(11);
  DrivenWindow d;
  d.sessions.fit_in_host = 40;
  d.copied = absl::Milliseconds(50);
  SECTION("host memory has room, and copies are cheap") {
    d.Run(1000, /*lost=*/false, kFull);
    CHECK(d.window.size() == SessionWindow::kUnbounded);
  }
  SECTION("copies take more than a twentieth of the compute time") {
    d.copied = absl::Milliseconds(51);
    d.Run(32, /*lost=*/false, kFull);
    CHECK(d.window.size() == 50);
  }
  SECTION("host memory has too little room") {
    d.sessions.fit_in_host = 39;
    d.Run(32, /*lost=*/false, kFull);
    CHECK(d.window.size() == 50);
  }
  SECTION("lost KV lowers the window to the sessions that fit in KV memory") {
    for (int i = 0; i < 20; ++i) d.Run(132, /*lost=*/true);
    CHECK(d.window.size() == 10);
  }
}

TEST_CASE("SessionWindow counts copies as service, not as waiting") {
  DrivenWindow d;
  d.copied = absl::Seconds(1);
  d.Run(1024, /*lost=*/true, absl::Seconds(2));
  d.Run(1024, /*lost=*/false, absl::Seconds(16));
  CHECK(d.window.size() == SessionWindow::kUnbounded);
  d.Run(32, /*lost=*/false, absl::Milliseconds(16001));
  CHECK(d.window.size() == 50);
}

TEST_CASE("SessionWindow leaves out a prefill per active session after a change") {
  DrivenWindow d;
  d.Run(32, /*lost=*/true);
  CHECK(d.window.size() == 50);
  d.Run(100, /*lost=*/true);  // prefills of the 100 active sessions
  d.sessions.active = 50;
  d.Run(32);
  CHECK(d.window.size() == 51);
}

TEST_CASE("SessionWindow never falls below the sessions that fit, nor below one") {
  DrivenWindow d;
  for (int i = 0; i < 20; ++i) d.Run(132, /*lost=*/true);
  CHECK(d.window.size() == 10);
  d.sessions.fit = 0;
  for (int i = 0; i < 20; ++i) d.Run(132, /*lost=*/true);
  CHECK(d.window.size() == 1);
}

TEST_CASE("SessionWindow grows by a 64th while sessions wait") {
  DrivenWindow d;
  d.Run(32, /*lost=*/true);
  d.sessions = {.active = 50, .some_wait = false};
  d.Run(1000);
  CHECK(d.window.size() == 50);
  d.sessions.some_wait = true;
  d.Run(32);
  CHECK(d.window.size() == 51);
  d.Run(50 + 32);
  CHECK(d.window.size() == 52);
}

TEST_CASE("SessionWindow ignores first prefills for loss but counts them for rounds") {
  DrivenWindow d;
  d.Run(8 * 128, /*lost=*/true, absl::Seconds(2), false);
  CHECK(d.window.size() == SessionWindow::kUnbounded);
  d.Run(32, /*lost=*/true);
  CHECK(d.window.size() == 50);
  d.sessions.active = 50;
  d.Run(100 + 10 * (128 + 50), /*lost=*/true, absl::Seconds(2), false);
  CHECK(d.window.size() == 60);
}

TEST_CASE("SessionWindow judges a round with few prefills of known sessions") {
  DrivenWindow d;
  d.Run(126, /*lost=*/false, absl::Seconds(2), false);
  d.Run(2, /*lost=*/true);
  CHECK(d.window.size() == 50);
}

}  // namespace
}  // namespace baton
