// The placement of requests while workers are silent, hung or drained.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "catch.h"
#include "world/watched_cluster.h"

namespace baton {
namespace {

// Returns the workers of the kStartPrefill lines.
std::set<std::string> WorkersIn(const Lines& lines) {
  std::set<std::string> workers;
  for (const std::string& line : lines) {
    for (const char* link : {kP, kP2, kD, kD2}) {
      if (line.starts_with("prefill ") && line.find(link) != std::string::npos) workers.insert(link);
    }
  }
  return workers;
}

std::set<std::string> WorkersOfTwenty(WatchedCluster& c, const std::string& name) {
  std::set<std::string> workers;
  for (int i = 0; i < 20; ++i) workers.merge(WorkersIn(c.Submit(Ask(absl::StrCat(name, i)))));
  return workers;
}

TEST_CASE("RouterCore places no request on a silent or hung worker while others can serve") {
  for (const bool hangs : {false, true}) {
    INFO((hangs ? "hung" : "silent"));
    WatchedCluster c;
    const std::string line = hangs ? "prefill-1 is hung" : "prefill-1 is silent";
    CHECK((hangs ? c.Hang(kP) : c.Silence(kP)) == Lines{line});
    hangs ? c.Hang(kD) : c.Silence(kD);
    CHECK(c.HealthOf(kP) == (hangs ? WorkerHealth::kHung : WorkerHealth::kSilent));
    CHECK(WorkersOfTwenty(c, "a") == std::set<std::string>{kP2, kD2});
    c.Resume(kP);
    c.Resume(kD);
    CHECK(c.HealthOf(kP) == WorkerHealth::kWell);
    const std::set<std::string> workers = WorkersOfTwenty(c, "b");
    CHECK(workers.contains(kP));
    CHECK(workers.contains(kD));
  }
}

void MakeReturning(WatchedCluster& c, const std::string& link) {
  for (int i = 0; i < 2; ++i) {
    c.Hang(link);
    c.Resume(link);
  }
  REQUIRE(c.HealthOf(link) == WorkerHealth::kReturning);
}

TEST_CASE("RouterCore prefers a returning worker to one that shuts down") {
  WatchedCluster c;
  MakeReturning(c, kD2);
  CHECK(WorkersOfTwenty(c, "a").contains(kD));
  c.loads[kD].draining = true;
  c.Run(absl::Milliseconds(100));
  Take(c.core);
  const std::set<std::string> workers = WorkersOfTwenty(c, "b");
  CHECK(workers.contains(kD2));
  CHECK_FALSE(workers.contains(kD));
}

TEST_CASE("RouterCore uses the room of a returning decode worker if no other can serve") {
  WatchedCluster c;
  c.core.WorkerLost(kD2, c.now);
  c.loads.erase(kD2);
  if (GENERATE(false, true)) {
    WorkerInfo other = Info(WorkerRole::kDecode, "decode-3", 24);
    other.model = "another";
    c.core.WorkerAttached("decode-3", other, c.now);
  }
  MakeReturning(c, kD);
  REQUIRE(WorkersIn(c.Submit(Ask("r"))).contains(kD));
  for (const std::string& prefill : {std::string(kP), std::string(kP2)}) c.core.Failed(prefill, "r", NoRoom(), c.now);
  Take(c.core);
  c.core.OnRoom(kD, 1, c.now);
  CHECK(WorkersIn(Take(c.core)).contains(kD));
}

TEST_CASE("RouterCore places requests on a silent worker if no other can serve them") {
  WatchedCluster c;
  SECTION("all workers of the kind are silent") {
    c.Silence(kP);
    c.Silence(kP2);
    CHECK(WorkersOfTwenty(c, "a").size() == 4);
  }
  SECTION("the other worker is too small") {
    WatchedCluster small;
    small.core.WorkerLost(kP2, small.now);
    WorkerInfo info = Info(WorkerRole::kPrefill, kP2, 12);
    info.context = 10;
    small.core.WorkerAttached(kP2, info, small.now);
    small.Silence(kP);
    CHECK(WorkersIn(small.Submit(Ask("r"))).contains(kP));
  }
}

TEST_CASE("RouterCore waits for room while the workers with room are silent") {
  WatchedCluster c;
  c.Silence(kD2);
  REQUIRE(WorkersIn(c.Submit(Ask("r"))).contains(kD));
  c.core.Failed(kP, "r", NoRoom(), c.now);
  c.core.Failed(kP2, "r", NoRoom(), c.now);
  CHECK(Take(c.core).empty());
  CHECK(c.core.waiting_requests() == 1);
  CHECK(WorkersIn(c.Resume(kD2)).contains(kD2));
}

TEST_CASE("RouterCore gives a returning worker no requests unless the others are avoided") {
  WatchedCluster c;
  for (int i = 0; i < 3; ++i) {
    c.stopped.insert(kP);
    c.Run(absl::Seconds(4));
    c.Resume(kP);
  }
  CHECK(c.HealthOf(kP) == WorkerHealth::kReturning);
  CHECK_FALSE(WorkersOfTwenty(c, "a").contains(kP));
  c.Hang(kP2);
  CHECK_FALSE(WorkersOfTwenty(c, "b").contains(kP2));
}

TEST_CASE("RouterCore moves few requests when a worker's connection breaks each second") {
  WatchedCluster c;
  int placed = 0, at_other = 0;
  for (int second = 0; second < 20; ++second) {
    for (int i = 0; i < 5; ++i) {
      const std::string id = absl::StrCat("r", second, "-", i);
      const std::set<std::string> workers = WorkersIn(c.Submit(Ask(id)));
      placed += workers.contains(kD);
      at_other += workers.contains(kD2);
      c.Run(absl::Milliseconds(200));
      c.core.Cancel(id);
    }
    c.core.WorkerLost(kD, c.now);
    c.core.WorkerAttached(kD, Info(WorkerRole::kDecode, kD, 22), c.now);
    Take(c.core);
  }
  // The worker serves before its first loss, after it, and at the very end of its first return.
  CHECK(placed <= 6);
  CHECK(placed + at_other == 100);
  CHECK(c.core.workers().at(kD).health_reason == "avoided or lost 20 times, gets no new requests for 30s");
}

TEST_CASE("RouterCore places requests on the only worker although it was lost many times") {
  WatchedCluster c;
  c.core.WorkerLost(kD2, c.now);
  for (int i = 0; i < 5; ++i) {
    c.core.WorkerLost(kD, c.now);
    c.core.WorkerAttached(kD, Info(WorkerRole::kDecode, kD, 22), c.now);
  }
  Take(c.core);
  CHECK(c.HealthOf(kD) == WorkerHealth::kReturning);
  CHECK(WorkersIn(c.Submit(Ask("r"))).contains(kD));
}

TEST_CASE("RouterCore avoids no worker when the router was stopped for 5 s") {
  WatchedCluster c;
  REQUIRE(c.Submit(Ask("r")).size() == 1);
  c.now += absl::Seconds(5);
  c.core.Tick(c.now);
  c.Run(absl::Seconds(1));
  CHECK(Take(c.core).empty());
  for (const char* link : {kP, kP2, kD, kD2}) CHECK(c.HealthOf(link) == WorkerHealth::kWell);
}

TEST_CASE("RouterCore wakes up for its watch only while it has requests") {
  WatchedCluster c;
  CHECK(c.core.NextTick() == absl::InfiniteFuture());
  c.Submit(Ask("r"));
  CHECK(c.core.NextTick() <= c.now + WorkerWatch::kTick);
  c.Silence(kP);  // reports of the other workers find it
  c.core.Cancel("r");
  Take(c.core);
  CHECK(c.core.NextTick() == absl::InfiniteFuture());
}

TEST_CASE("RouterCore places no request on a drained worker until the drain ends") {
  WatchedCluster c;
  c.core.Drain(kP, true, c.now);
  const bool restarts = GENERATE(false, true);
  if (restarts) {
    c.core.WorkerLost(kP, c.now);
    c.core.WorkerAttached(kP, Info(WorkerRole::kPrefill, kP, 13), c.now);
    Take(c.core);
  }
  for (int i = 0; i < 20; ++i) {
    const Lines lines = c.Submit(Ask(absl::StrCat("r", i)));
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].starts_with(absl::StrCat("prefill r", i, " prefill-2")));
  }
  c.core.Drain(kP, false, c.now);
  int at_first = 0;
  for (int i = 20; i < 40; ++i)
    at_first += c.Submit(Ask(absl::StrCat("r", i)))[0].find(" prefill-1 ") != std::string::npos;
  CHECK(at_first > 0);
}

TEST_CASE("RouterCore lets requests wait when all workers of a kind are drained") {
  WatchedCluster c;
  for (const char* link : {kD, kD2}) c.core.Drain(link, true, c.now);
  CHECK(c.Submit(Ask("r")).empty());
  c.core.Drain(kD2, false, c.now);
  const Lines lines = Take(c.core);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].ends_with(" decode-2"));
}

TEST_CASE("RouterCore moves the requests of a drained worker that others can take") {
  WatchedCluster c;
  const std::vector<std::string> words = absl::StrSplit(c.Submit(Ask("r"))[0], ' ');
  const std::string decode = words[3], other = decode == kD ? kD2 : kD;
  REQUIRE(c.core.PrefillDone(words[2], "r", Incarnation(decode == kD ? 22 : 23), c.now));
  REQUIRE(c.core.TokensArrived(decode, "r", false));
  Take(c.core);
  SECTION("another worker takes it") {
    c.core.Drain(decode, true, c.now);
    const Lines lines = Take(c.core);
    REQUIRE(lines.size() == 2);
    CHECK(lines[0] == "cancel r " + decode);
    CHECK(lines[1].ends_with(" " + other));
    CHECK(c.core.workers().at(decode).requests.empty());
  }
  SECTION("no other worker can take it") {
    c.core.WorkerLost(other, c.now);
    c.core.Drain(decode, true, c.now);
    CHECK(Take(c.core).empty());
    CHECK(c.core.TokensArrived(decode, "r", true));
    CHECK(Take(c.core) == Lines{"end r OK"});
  }
}

TEST_CASE("RouterCore keeps no room at a drained or avoided worker") {
  WatchedCluster c;
  for (Lines lines = c.Submit(Ask("r")); !lines.empty(); lines = Take(c.core)) {
    const std::vector<std::string> words = absl::StrSplit(lines[0], ' ');
    c.core.Failed(words[2], "r", NoRoom(), c.now);
  }
  c.Run(RouterLimits().room_wait);
  const Lines kept = Take(c.core);
  REQUIRE(kept.size() == 1);
  const std::string at = kept[0] == "keep r decode-1" ? kD : kD2, other = at == kD ? kD2 : kD;
  Lines lines;
  SECTION("an operator drains it") {
    c.core.Drain(at, true, c.now);
    c.Run(absl::Milliseconds(200));
    lines = Take(c.core);
  }
  SECTION("it hangs") {
    lines = c.Hang(at);
    c.Run(absl::Milliseconds(200));
    const Lines more = Take(c.core);
    lines.insert(lines.end(), more.begin(), more.end());
  }
  CHECK(std::ranges::count(lines, "keep none " + at) == 1);
  CHECK(std::ranges::count(lines, "keep r " + other) == 1);
}

}  // namespace
}  // namespace baton
