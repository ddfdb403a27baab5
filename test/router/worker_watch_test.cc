#include "router/worker_watch.h"

#include <algorithm>
#include <deque>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "catch.h"
#include "source_path.h"

namespace baton {
namespace {

using Lines = std::vector<std::string>;

// A router that ticks its watch on time, and workers that report every 100 ms while they run.
class WatchWorld {
 public:
  explicit WatchWorld(WatchOptions options = {}) : watch_(options) {}

  // A worker. Its reports continue until `runs` is false.
  struct Worker {
    std::string name;
    bool runs = true;
    WorkerLoad load{};
  };
  Worker& Add(const std::string& name) { return workers_.emplace_back(Worker{name}); }

  // Lets time pass, in steps of 50 ms.
  void Run(absl::Duration time) {
    for (const absl::Time end = now + time; now < end;) {
      now += absl::Milliseconds(50);
      ++rounds_;
      for (Worker& worker : workers_) {
        if (worker.runs && rounds_ % 2 == 0) watch_.Reported(worker.name, worker.load, now);
      }
      if (now >= watch_.NextTick()) watch_.Tick(now);
      Note();
    }
  }
  // Breaks a worker's connection. It reports again after Attach.
  void Lose(Worker& worker, bool announced = false) {
    worker.runs = false;
    watch_.Lost(worker.name, announced, now);
  }
  void Attach(Worker& worker) {
    worker.runs = true;
    watch_.Attached(worker.name, now);
    Note();
  }
  // Stops the router. Reports stay unread.
  void StopRouter(absl::Duration time) { now += time; }
  void Tick() {
    watch_.Tick(now);
    Note();
  }

  // Returns lines of the changes since the last call: "a silent at 1s".
  Lines Take() { return std::exchange(lines_, {}); }
  const WorkerWatch& watch() const { return watch_; }

  absl::Time now = absl::UnixEpoch();

 private:
  void Note() {
    for (const WorkerWatch::Change& change : watch_.TakeChanges()) {
      lines_.push_back(
          StrCat(change.worker, " ", NameOf(change.health), " at ", absl::FormatDuration(now - absl::UnixEpoch())));
      CHECK(change.reason.empty() == (change.health == WorkerHealth::kWell));
    }
  }

  WorkerWatch watch_;
  std::deque<Worker> workers_;
  int rounds_ = 0;
  Lines lines_;
};

TEST_CASE("WorkerWatch finds a worker silent when no report came for 1 s") {
  WatchWorld world;
  world.Add("a");
  WatchWorld::Worker& b = world.Add("b");
  world.Run(absl::Seconds(10));
  CHECK(world.Take().empty());
  b.runs = false;
  world.Run(absl::Seconds(5));
  CHECK(world.Take() == Lines{"b silent at 11s"});
  CHECK(world.watch().avoidances(WorkerHealth::kSilent) == 1);
  b.runs = true;
  world.Run(absl::Milliseconds(100));
  CHECK(world.Take() == Lines{"b well at 15.1s"});
}

TEST_CASE("WorkerWatch waits up to 3 s when the worker's reports were irregular") {
  for (const auto& [pause, limit] : {std::pair{0.3, 1.0}, {0.8, 1.6}, {1.4, 2.8}, {2.0, 3.0}}) {
    INFO("a pause of " << pause << " s");
    WatchWorld world({.silence = absl::Seconds(1), .longest_silence = absl::Seconds(3)});
    WatchWorld::Worker& a = world.Add("a");
    world.Run(absl::Seconds(1));
    a.runs = false;
    world.Run(absl::Seconds(pause - 0.1));  // the last report came before the pause
    a.runs = true;
    world.Run(absl::Seconds(1));
    world.Take();
    a.runs = false;
    world.Run(absl::Seconds(limit) - absl::Milliseconds(50));
    CHECK(world.Take().empty());
    world.Run(absl::Milliseconds(50));
    CHECK(world.Take().size() == 1);
  }
}

TEST_CASE("WorkerWatch forgets long intervals when reports are regular again") {
  WatchWorld world;
  WatchWorld::Worker& a = world.Add("a");
  world.Run(absl::Seconds(1));
  a.runs = false;
  world.Run(absl::Seconds(2));
  a.runs = true;
  world.Run(absl::Minutes(3));
  world.Take();
  a.runs = false;
  world.Run(absl::Milliseconds(1100));
  CHECK(world.Take().size() == 1);
}

TEST_CASE("WorkerWatch does not become slower when a worker was stopped for long") {
  WatchWorld world;
  WatchWorld::Worker& a = world.Add("a");
  for (int i = 0; i < 3; ++i) {
    world.Run(absl::Minutes(2));
    world.Take();
    a.runs = false;
    world.Run(absl::Milliseconds(1000));
    CHECK(world.Take().size() == 1);
    world.Run(absl::Seconds(20));
    a.runs = true;
  }
}

TEST_CASE("WorkerWatch avoids no worker when the router itself was stopped for 5 s") {
  WatchWorld world;
  world.Add("a");
  world.Add("b");
  world.Run(absl::Seconds(2));
  for (const bool ticks_first : {true, false}) {
    world.StopRouter(absl::Seconds(5));
    if (ticks_first) world.Tick();
    world.Run(absl::Seconds(2));
    CHECK(world.Take().empty());
  }
}

TEST_CASE("WorkerWatch finds a silent worker when the router was stopped before") {
  WatchWorld world;
  WatchWorld::Worker& a = world.Add("a");
  world.Run(absl::Seconds(2));
  a.runs = false;
  world.StopRouter(absl::Seconds(5));
  world.Run(absl::Milliseconds(700));
  CHECK(world.Take().empty());
  world.Run(absl::Milliseconds(100));
  CHECK(world.Take().size() == 1);
}

TEST_CASE("WorkerWatch finds a worker hung when its step takes five times the forecast") {
  for (const auto& [forecast, limit] : {std::pair{0.01, 1.0}, {0.2, 1.0}, {0.5, 2.5}, {0.0, 10.0}}) {
    INFO("forecast " << forecast << " s");
    WatchWorld world;
    WatchWorld::Worker& a = world.Add("a");
    a.load = {.steps = 7, .step_forecast = absl::Seconds(forecast)};
    a.load.step_time = absl::Seconds(limit) - absl::Milliseconds(1);
    world.Run(absl::Seconds(1));
    CHECK(world.Take().empty());
    a.load.step_time = absl::Seconds(limit);
    world.Run(absl::Milliseconds(100));
    CHECK(world.Take() == Lines{"a hung at 1.1s"});
    CHECK(world.watch().avoidances(WorkerHealth::kHung) == 1);
    world.Run(absl::Seconds(20));
    CHECK(world.Take().empty());
    a.load = {.steps = 8};
    world.Run(absl::Milliseconds(100));
    CHECK(world.Take() == Lines{"a well at 21.2s"});
  }
}

TEST_CASE("WorkerWatch finds a worker silent when it reports and takes up no commands") {
  WatchWorld world;
  WatchWorld::Worker& a = world.Add("a");
  a.load.commands = 0;
  world.Run(absl::Seconds(10));
  a.load.commands_sent = 2;
  world.Run(absl::Milliseconds(900));
  CHECK(world.Take().empty());
  world.Run(absl::Milliseconds(100));
  CHECK(world.Take() == Lines{"a silent at 11s"});
  SECTION("it takes up commands again") {
    a.load.commands = 1;
    world.Run(absl::Milliseconds(100));
    CHECK(world.Take() == Lines{"a well at 11.1s"});
    world.Run(absl::Seconds(1));
    CHECK(world.Take() == Lines{"a silent at 12.1s"});
  }
  SECTION("its reports end too") {
    a.runs = false;
    world.Run(absl::Seconds(5));
    CHECK(world.Take().empty());
    a.runs = true;
    world.Run(absl::Seconds(5));
    CHECK(world.Take().empty());
  }
}

TEST_CASE("WorkerWatch finds no worker silent when it takes up commands slowly or counts none") {
  WatchWorld world;
  WatchWorld::Worker& slow = world.Add("slow");
  world.Add("old").load.commands_sent = 1000;
  slow.load.commands = 0;
  slow.load.commands_sent = 1000;
  for (int i = 0; i < 20; ++i) {
    world.Run(absl::Milliseconds(900));
    ++*slow.load.commands;
  }
  CHECK(world.Take().empty());
}

TEST_CASE("WorkerWatch finds a hung worker silent when its reports end too") {
  WatchWorld world;
  WatchWorld::Worker& a = world.Add("a");
  a.load = {.steps = 7, .step_time = absl::Minutes(1)};
  world.Run(absl::Seconds(1));
  a.runs = false;
  world.Run(absl::Seconds(2));
  a.runs = true;
  world.Run(absl::Seconds(1));
  CHECK(world.Take() == Lines{"a hung at 100ms", "a silent at 2s", "a hung at 3.1s"});
}

TEST_CASE("WorkerWatch makes a worker stay well for longer after each avoidance") {
  WatchWorld world;
  WatchWorld::Worker& a = world.Add("a");
  world.Run(absl::Seconds(1));
  for (const int returning : {0, 1, 2, 4, 8, 16, 30, 30}) {
    a.runs = false;
    world.Run(absl::Seconds(3));
    world.Take();
    a.runs = true;
    const absl::Time returns = world.now + absl::Milliseconds(100);
    world.Run(absl::Seconds(31));
    const absl::Duration at = returns + absl::Seconds(returning) - absl::UnixEpoch();
    const Lines lines = world.Take();
    REQUIRE_FALSE(lines.empty());
    CHECK(lines.back() == StrCat("a well at ", absl::FormatDuration(at)));
    CHECK(lines.size() == (returning == 0 ? 1 : 2));
  }
  world.Run(absl::Minutes(1));
  a.runs = false;
  world.Run(absl::Seconds(3));
  a.runs = true;
  world.Run(absl::Milliseconds(100));
  CHECK(world.Take().back().starts_with("a well"));
}

TEST_CASE("WorkerWatch changes its mind a few times when a worker comes and goes") {
  for (const double pause : {1.5, 4.0}) {
    INFO("reports for 1 s, then pauses " << pause << " s");
    WatchWorld world;
    WatchWorld::Worker& a = world.Add("a");
    int well = 0;
    for (int i = 0; i < 300; ++i) {
      a.runs = i % 2 == 0;
      world.Run(absl::Seconds(a.runs ? 1 : pause));
      for (const std::string& line : world.Take()) well += line.starts_with("a well");
    }
    // The worker either is irregular and bears its pauses, or gets no new requests between them.
    if (pause > 3) CHECK(world.watch().avoidances(WorkerHealth::kSilent) == 150);
    CHECK(well <= 2);
  }
}

TEST_CASE("WorkerWatch makes a lost worker return for longer after each loss") {
  WatchWorld world;
  world.Add("b");
  WatchWorld::Worker& a = world.Add("a");
  world.Run(absl::Seconds(1));
  for (const int returning : {0, 1, 2, 4, 8, 16, 30, 30}) {
    world.Lose(a);
    world.Run(absl::Seconds(5));
    CHECK(world.Take().empty());
    world.Attach(a);
    const absl::Duration at = world.now - absl::UnixEpoch();
    world.Run(absl::Seconds(31));
    Lines expected;
    if (returning > 0) {
      expected = {StrCat("a returning at ", absl::FormatDuration(at)),
                  StrCat("a well at ", absl::FormatDuration(at + absl::Seconds(returning)))};
    }
    CHECK(world.Take() == expected);
  }
}

TEST_CASE("WorkerWatch gives a worker little time when its connection breaks each second") {
  WatchWorld world;
  WatchWorld::Worker& a = world.Add("a");
  int well = 1;
  for (int i = 0; i < 300; ++i) {
    world.Run(absl::Milliseconds(1100));
    for (const std::string& line : world.Take()) well += line.starts_with("a well");
    world.Lose(a);
    world.Run(absl::Milliseconds(100));
    world.Attach(a);
  }
  // The first loss costs no time. The second one costs 1 s of the 1.1 s that the worker is there.
  CHECK(well == 2);
  CHECK(world.Take() == Lines{"a returning at 6m"});
}

TEST_CASE("WorkerWatch counts a silence and the loss that follows once") {
  WatchWorld world;
  WatchWorld::Worker& a = world.Add("a");
  world.Run(absl::Seconds(1));
  a.runs = false;
  world.Run(absl::Seconds(3));
  CHECK(world.Take() == Lines{"a silent at 2s"});
  world.Lose(a);
  world.Attach(a);
  CHECK(world.Take().empty());  // well at once, as after a first avoidance
  world.Run(absl::Milliseconds(100));
  world.Lose(a);
  world.Attach(a);
  CHECK(world.Take() == Lines{"a returning at 4.1s"});
}

TEST_CASE("WorkerWatch forgets losses after a minute, and at once if they were announced") {
  WatchWorld world;
  world.Add("b");
  WatchWorld::Worker& a = world.Add("a");
  const auto lose_twice = [&] {
    world.Run(absl::Seconds(1));
    world.Lose(a);
    world.Attach(a);
    world.Run(absl::Seconds(1));
    world.Lose(a);
  };
  lose_twice();
  SECTION("lost for a minute") { world.StopRouter(WorkerWatch::kForgiven); }
  SECTION("well for a minute") {
    world.Attach(a);
    world.Run(absl::Seconds(1) + WorkerWatch::kForgiven);
    world.Lose(a);
  }
  SECTION("an announced shutdown") {
    world.Attach(a);
    world.Lose(a, /*announced=*/true);
  }
  world.Take();
  world.Attach(a);
  CHECK(world.Take().empty());
}

TEST_CASE("WorkerWatch remembers the workers that were lost in the last minute only") {
  WorkerWatch watch({});
  for (int i = 0; i < 1000; ++i) {
    const absl::Time now = absl::UnixEpoch() + i * absl::Seconds(1);
    watch.Reported(StrCat("w", i), {}, now);
    watch.Lost(StrCat("w", i), /*announced=*/false, now);
    CHECK(watch.remembered() == static_cast<size_t>(std::min(i + 1, 60)));
  }
  watch.Attached("w999", absl::UnixEpoch() + absl::Seconds(1000));
  CHECK(watch.remembered() == 59);
}

TEST_CASE("WorkerWatch visits few workers when a thousand of them report") {
  WatchWorld world;
  for (int i = 0; i < 1000; ++i) world.Add(StrCat("w", i));
  world.Run(absl::Seconds(10));
  // 100,000 reports, and one search through all workers in 0.9 s.
  CHECK(world.watch().visits() <= 12'000);
  CHECK(world.Take().empty());
}

TEST_CASE("WorkerWatch avoids no worker when it is off, or when the worker is lost") {
  WatchWorld off({.silence = absl::ZeroDuration()});
  WatchWorld::Worker& a = off.Add("a");
  off.Run(absl::Seconds(1));
  CHECK(off.watch().NextTick() == absl::InfiniteFuture());
  a.runs = false;
  off.Run(absl::Seconds(60));
  for (int i = 0; i < 3; ++i) {
    off.Lose(a);
    off.Attach(a);
  }
  CHECK(off.Take().empty());

  WorkerWatch watch({});
  watch.Reported("a", {}, absl::UnixEpoch());
  CHECK(watch.NextTick() == absl::UnixEpoch() + WorkerWatch::kTick);
  watch.Lost("a", /*announced=*/false, absl::UnixEpoch());
  CHECK(watch.NextTick() == absl::InfiniteFuture());
}

// Returns the intervals of each worker in a file that tools/record_reports has written.
std::map<std::string, std::vector<absl::Duration>> ReadIntervals(const std::string& path) {
  std::ifstream file(path);
  REQUIRE(file.is_open());
  std::map<std::string, std::vector<absl::Duration>> workers;
  std::string line, name;
  while (std::getline(file, line)) {
    if (line.starts_with("#")) continue;
    if (line.find('-') != std::string::npos) {
      name = line;
      continue;
    }
    std::istringstream numbers(line);
    for (int ms = 0; numbers >> ms;) workers[name].push_back(absl::Milliseconds(ms));
  }
  return workers;
}

TEST_CASE("WorkerWatch avoids no worker when it replays reports of a busy machine") {
  const auto workers = ReadIntervals(SourcePath("test/golden/report_intervals.txt"));
  REQUIRE(workers.size() >= 2);
  std::multimap<absl::Time, std::string> reports;
  absl::Duration longest, recorded;
  for (const auto& [name, intervals] : workers) {
    absl::Time at = absl::UnixEpoch();
    reports.emplace(at, name);
    for (const absl::Duration interval : intervals) {
      reports.emplace(at += interval, name);
      longest = std::max(longest, interval);
    }
    recorded = std::max(recorded, at - absl::UnixEpoch());
  }
  CHECK(recorded >= absl::Minutes(9));
  INFO("longest interval " << longest);
  WorkerWatch watch({});
  for (const auto& [at, name] : reports) {
    while (watch.NextTick() < at) watch.Tick(watch.NextTick());
    watch.Reported(name, {}, at);
    for (const WorkerWatch::Change& change : watch.TakeChanges()) FAIL_CHECK(change.worker << ": " << change.reason);
  }
}

}  // namespace
}  // namespace baton
