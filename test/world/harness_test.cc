#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "temp_dir.h"
#include "world/dice.h"
#include "world/mail.h"
#include "world/random_run.h"
#include "world/scenario.h"
#include "world/timeline.h"

namespace baton {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST_CASE("A command line has a name, words and options") {
  const ScenarioCommand command("add A  tokens=0..3 priority=2 B");
  CHECK(command.name == "add");
  CHECK(command.words == std::vector<std::string>{"A", "B"});
  CHECK(command.Option("tokens") == "0..3");
  CHECK(command.Option("none", "otherwise") == "otherwise");
  CHECK(command.Number("priority") == 2);
  CHECK(command.Number("none", 7) == 7);
  CHECK(ParseTokens("0..3,9") == std::vector<int32_t>{0, 1, 2, 3, 9});
}

TEST_CASE("A scenario runs its commands in order, and an update rewrites it") {
  const TempDir directory;
  const std::string path = directory / "scenario.txt";
  const std::string text = "# a comment\none 1\ntwo\n----\none\ntwo\n\nthree\n----\nthree\n";
  std::ofstream(path) << text;
  std::vector<std::string> ran;
  const auto run = [&](const ScenarioCommand& command) {
    ran.push_back(command.name);
    return command.name + "\n";
  };
  RunScenario(path, run);
  CHECK(ran == std::vector<std::string>{"one", "two", "three"});
  CHECK(ReadAll(path) == text);
  if (std::getenv("BATON_UPDATE_SCENARIOS") != nullptr) return;
  std::ofstream(path) << "one\n----\nold\n";
  setenv("BATON_UPDATE_SCENARIOS", "1", /*overwrite=*/1);
  RunScenario(path, run);
  unsetenv("BATON_UPDATE_SCENARIOS");
  CHECK(ReadAll(path) == "one\n----\none\n");
}

TEST_CASE("Scenario files are found by the beginnings of their names") {
  const std::vector<std::string> files = ScenarioFiles({"handoff_normal", "agents_stop_string.txt"});
  REQUIRE(files.size() == 2);
  CHECK(files[0].ends_with("/agents_stop_string.txt"));
  CHECK(files[1].ends_with("/handoff_normal.txt"));
}

// Posts an envelope that records its arrival.
void Post(Mail& mail, std::vector<std::string>& log, const std::string& text) {
  mail.Post({"", text, [&log, text] { log.push_back(text); }, nullptr});
}

TEST_CASE("Mail is taken by its place or by a word, oldest first") {
  Mail mail;
  std::vector<std::string> log;
  for (const char* text : {"reserve a", "push a", "push b"}) Post(mail, log, text);
  CHECK(mail.TakeOldest("push").text == "push a");
  CHECK(mail.Take(1).text == "push b");
  CHECK(mail.TakeOldest("").text == "reserve a");
  CHECK(mail.empty());
}

TEST_CASE("DeliverAll delivers in order, with caused mail, and keeps held mail") {
  Mail mail;
  std::vector<std::string> log;
  mail.Post({"", "first", [&] { Post(mail, log, "caused"); }, nullptr});
  for (const char* text : {"held", "second"}) Post(mail, log, text);
  mail.DeliverAll([](const Envelope& envelope) { return envelope.text != "held"; });
  CHECK(log == std::vector<std::string>{"second", "caused"});
  REQUIRE(mail.in_flight().size() == 1);
  CHECK(mail.in_flight()[0].text == "held");
}

TEST_CASE("Events and ticks run in order of time, a tick first when equal") {
  Timeline timeline(absl::Seconds(2));
  const absl::Time begin = timeline.Now();
  std::vector<std::string> log;
  const auto note = [&](const char* what) {
    log.push_back(absl::StrCat(what, " ", absl::ToInt64Seconds(timeline.Now() - begin)));
  };
  for (const int second : {3, 2, 1}) timeline.After(absl::Seconds(second), [&] { note("event"); });
  const auto run = [&](absl::Duration until, bool idle) {
    while (timeline.RunOne(
        begin + until, [&] { note("tick"); }, [&] { return idle; })) {
    }
  };
  run(absl::Seconds(5), /*idle=*/true);  // ends with the last event
  CHECK(log == std::vector<std::string>{"tick 0", "event 1", "tick 2", "event 2", "event 3"});
  run(absl::Seconds(6), /*idle=*/false);
  CHECK(log.size() == 7);
  CHECK(log.back() == "tick 6");
}

TEST_CASE("Dice of one seed repeat, within their limits") {
  Dice<std::mt19937> one(5), other(5);
  for (int i = 0; i < 100; ++i) {
    CHECK(one.Below(7) == other.Below(7));
    const int between = one.Uniform(3, 5);
    CHECK((between >= 3 && between <= 5));
    other.Uniform(3, 5);
    CHECK(one.Chance(0.5) == other.Chance(0.5));
    CHECK_FALSE(one.Chance(0));
    other.Chance(0);
  }
}

// Records the calls of the harness.
struct CountedWorld {
  explicit CountedWorld(uint64_t with) : seed(with) {}
  bool Event() { return ++events < 5; }
  void CheckInvariants() { ++checks; }
  void Settle() { checks_before_settling = checks; }
  std::vector<BlockPool::Counts> Pools() {
    pools_read = true;
    return {};
  }
  uint64_t seed;
  int events = 0, checks = 0, checks_before_settling = 0;
  bool pools_read = false;
};

TEST_CASE("A world is checked after each event and when settled, for each seed") {
  std::vector<uint64_t> ran;
  const Seeds seeds = ForEachWorld<CountedWorld>(3, [&](const CountedWorld& world) {
    ran.push_back(world.seed);
    CHECK(world.events == 5);
    CHECK(world.checks_before_settling == 5);
    CHECK(world.checks == 6);
    CHECK(world.pools_read);
  });
  CHECK(ran.size() == seeds.count());
  CHECK(ran.front() == seeds.first());
}

TEST_CASE("AllBlocksBack holds when no block is referenced or quarantined") {
  BlockPool pool(3);
  CHECK(AllBlocksBack(pool.counts()));
  std::optional<BlockRef> block = pool.Allocate();
  REQUIRE(block.has_value());
  CHECK_FALSE(AllBlocksBack(pool.counts()));
  block.reset();
  CHECK(AllBlocksBack(pool.counts()));
}

}  // namespace
}  // namespace baton
