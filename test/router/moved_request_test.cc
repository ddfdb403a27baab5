// Requests whose worker becomes silent or hangs.
#include <algorithm>
#include <array>

#include "absl/strings/str_split.h"
#include "catch.h"
#include "request/priority.h"
#include "world/watched_cluster.h"

namespace baton {
namespace {

// The workers of the last job for a prefill worker: "prefill r prefill-1 decode-2".
struct Job {
  std::string prefill, decode;
  std::string OtherPrefill() const { return prefill == kP ? kP2 : kP; }
  std::string OtherDecode() const { return decode == kD ? kD2 : kD; }
};

Job LastJob(const Lines& lines) {
  Job job;
  for (const std::string& line : lines) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() == 4 && words[2].starts_with("prefill-")) job = {words[2], words[3]};
  }
  REQUIRE_FALSE(job.prefill.empty());
  return job;
}

Incarnation IncarnationOf(const std::string& decode) { return Incarnation(decode == kD ? 22 : 23); }

// Brings request "r" to a stage. Returns its workers.
Job Bring(WatchedCluster& c, Stage stage, RouteRequest request = Ask("r")) {
  const Job job = LastJob(c.Submit(std::move(request)));
  if (stage != Stage::kPrefilling) REQUIRE(c.core.PrefillDone(job.prefill, "r", IncarnationOf(job.decode), c.now));
  if (stage == Stage::kDecoding) REQUIRE(c.core.TokensArrived(job.decode, "r", false));
  Take(c.core);
  return job;
}

bool Has(const Lines& lines, const std::string& line) { return std::ranges::count(lines, line) > 0; }

TEST_CASE("RouterCore hedges a prompt of an avoided prefill worker, and the first commit wins") {
  for (const bool hangs : {false, true}) {
    WatchedCluster c;
    const Job former = Bring(c, Stage::kPrefilling);
    const Lines lines = hangs ? c.Hang(former.prefill) : c.Silence(former.prefill);
    const Job hedge = LastJob(lines);
    CHECK(hedge.prefill == former.OtherPrefill());
    CHECK(Has(lines, "hedge r " + hedge.prefill + " " + hedge.decode));
    CHECK(lines.size() == 2);  // the first line states the worker's health
    const bool hedge_wins = GENERATE(false, true);
    const Job& winner = hedge_wins ? hedge : former;
    CHECK(c.core.PrefillDone(winner.prefill, "r", IncarnationOf(winner.decode), c.now));
    const std::string decode = "decode r " + winner.decode;
    if (hedge_wins) {
      CHECK(Take(c.core) == Lines{"drop former r " + former.prefill + " " + former.decode, decode});
    } else {
      CHECK(Take(c.core) ==
            Lines{"cancel r " + hedge.prefill, "cancel r " + hedge.decode, "keep former r " + former.prefill, decode});
    }
    const Job& loser = hedge_wins ? former : hedge;
    CHECK_FALSE(c.core.PrefillDone(loser.prefill, "r", IncarnationOf(loser.decode), c.now));
    CHECK(c.core.TokensArrived(winner.decode, "r", true));
  }
}

TEST_CASE("RouterCore hedges no low-priority job, no job of a holder, and nothing without a choice") {
  WatchedCluster c;
  RouteRequest request = Ask("r");
  SECTION("a low-priority job") { request.priority = kLowPriority; }
  SECTION("a job that only the holder of its context may run") {
    request.holder = kP;
    request.at_holder = true;
  }
  SECTION("no other prefill worker") { c.core.WorkerLost(kP2, c.now); }
  SECTION("the other prefill worker is silent too") { c.Silence(kP2); }
  c.stopped.insert(kP2);  // so that the request goes to the first worker
  const Job job = LastJob(c.Submit(request));
  c.stopped.erase(kP2);
  if (c.core.workers().contains(kP2) && c.HealthOf(kP2) != WorkerHealth::kWell) c.stopped.insert(kP2);
  for (const std::string& line : c.Silence(job.prefill)) CHECK_FALSE(line.starts_with("hedge"));
}

TEST_CASE("RouterCore keeps the former job when its hedge cannot go on") {
  WatchedCluster c;
  const Job former = Bring(c, Stage::kPrefilling);
  const Job hedge = LastJob(c.Silence(former.prefill));
  const std::string keeps = "keep former r " + former.prefill;
  SECTION("the hedge's worker is lost") {
    c.core.WorkerLost(hedge.prefill, c.now);
    CHECK(Take(c.core) == Lines{"cancel r " + hedge.decode, keeps});
  }
  SECTION("the hedge's worker refuses") {
    c.core.Failed(hedge.prefill, "r", Full(absl::Seconds(1), /*at_decode=*/false), c.now);
    CHECK(Take(c.core) == Lines{keeps});
  }
  SECTION("the hedge fails") {
    c.core.Failed(hedge.prefill, "r", {absl::InternalError("broken")}, c.now);
    CHECK(Take(c.core) == Lines{"cancel r " + hedge.decode, keeps});
  }
  CHECK(c.core.PrefillDone(former.prefill, "r", IncarnationOf(former.decode), c.now));
}

TEST_CASE("RouterCore counts the time of an abandoned placement as no wait") {
  WatchedCluster c;
  const Job first = Bring(c, Stage::kPrefilling);
  c.core.Failed(first.prefill, "r", NoRoom(), c.now);
  const Job former = LastJob(Take(c.core));
  c.Run(absl::Seconds(40));
  const Job hedge = LastJob(c.Silence(former.prefill));
  c.core.Failed(hedge.prefill, "r", NoRoom(), c.now);
  REQUIRE(Has(Take(c.core), "keep former r " + former.prefill));
  c.core.Failed(former.prefill, "r", NoRoom(), c.now);
  CHECK(c.core.live_requests() == 1);
}

TEST_CASE("RouterCore tries another prefill worker when one reaches no decode worker") {
  WatchedCluster c;
  const RouterCore::Failure unreachable{absl::UnavailableError("mute"), absl::Seconds(1), true};
  const Job first = LastJob(c.Submit(Ask("r")));
  c.core.Failed(first.prefill, "r", unreachable, c.now);
  const Job second = LastJob(Take(c.core));
  CHECK(second.decode == first.OtherDecode());
  REQUIRE(second.prefill == first.prefill);
  c.core.Failed(second.prefill, "r", unreachable, c.now);
  CHECK(LastJob(Take(c.core)).prefill == first.OtherPrefill());
}

TEST_CASE("RouterCore hedges again after decode workers without room refused the hedge") {
  WatchedCluster c;
  const Job former = Bring(c, Stage::kPrefilling);
  const Job hedge = LastJob(c.Silence(former.prefill));
  c.core.Failed(hedge.prefill, "r", NoRoom(), c.now);
  const Job second = LastJob(Take(c.core));
  c.core.Failed(second.prefill, "r", NoRoom(), c.now);
  CHECK(Take(c.core) == Lines{"keep former r " + former.prefill});
  // Reports of room reach waiting requests only, and this request has a job.
  c.core.OnRoom(hedge.decode, 1, c.now);
  CHECK(Take(c.core).empty());
  c.Run(absl::Seconds(2));
  CHECK(Has(Take(c.core), "hedge r " + hedge.prefill + " " + hedge.decode));
}

TEST_CASE("RouterCore goes on with the hedge alone when the former job ends") {
  WatchedCluster c;
  const Job former = Bring(c, Stage::kPrefilling);
  const Job hedge = LastJob(c.Silence(former.prefill));
  SECTION("its worker is lost") {
    c.core.WorkerLost(former.prefill, c.now);
    CHECK(Take(c.core) == Lines{"drop former r  " + former.decode});
    c.loads.erase(former.prefill);
  }
  SECTION("it fails") {
    c.core.Failed(former.prefill, "r", {absl::InternalError("broken")}, c.now);
    CHECK(Take(c.core) == Lines{"drop former r " + former.prefill + " " + former.decode});
  }
  SECTION("the request ends") {
    c.core.Cancel("r");
    CHECK(Take(c.core) == Lines{"drop former r " + former.prefill + " " + former.decode, "cancel r " + hedge.prefill,
                                "cancel r " + hedge.decode, "end r CANCELLED"});
    return;
  }
  CHECK(c.core.PrefillDone(hedge.prefill, "r", IncarnationOf(hedge.decode), c.now));
  CHECK(Take(c.core) == Lines{"decode r " + hedge.decode});
}

TEST_CASE("RouterCore goes on with a stream elsewhere when its decode worker is avoided") {
  for (const Stage stage : {Stage::kStarting, Stage::kDecoding}) {
    for (const bool hangs : {false, true}) {
      WatchedCluster c;
      const Job old = Bring(c, stage);
      const Lines lines = hangs ? c.Hang(old.decode) : c.Silence(old.decode);
      const Job job = LastJob(lines);
      CHECK(job.decode == old.OtherDecode());
      CHECK(Has(lines, "cancel r " + old.decode));
      CHECK(lines.size() == 3);
      CHECK_FALSE(c.core.TokensArrived(old.decode, "r", false));
      CHECK(c.core.PrefillDone(job.prefill, "r", IncarnationOf(job.decode), c.now));
      CHECK(c.core.TokensArrived(job.decode, "r", true));
    }
  }
}

TEST_CASE("RouterCore places a hand-off again when its decode worker is avoided") {
  WatchedCluster c;
  const Job old = Bring(c, Stage::kPrefilling);
  const Lines lines = c.Silence(old.decode);
  CHECK(Has(lines, "cancel r " + old.prefill));
  CHECK(Has(lines, "cancel r " + old.decode));
  CHECK(LastJob(lines).decode == old.OtherDecode());
}

TEST_CASE("RouterCore starts a streaming prompt elsewhere when its prefill worker is avoided") {
  WatchedCluster c;
  const Job old = LastJob(c.Submit(OpenRequest("r")));
  const Lines lines = c.Silence(old.prefill);
  CHECK(Has(lines, "cancel r " + old.prefill));
  CHECK(LastJob(lines).prefill == old.OtherPrefill());
}

TEST_CASE("RouterCore counts no avoided worker as lost while it ran a request") {
  WatchedCluster c;
  Job job = Bring(c, Stage::kDecoding);
  for (int i = 0; i < 6; ++i) {
    c.core.StepStarted("r");
    const std::string old = job.decode;
    job = LastJob(c.Silence(old));
    c.Resume(old);
    c.Run(absl::Minutes(2));  // the worker is well again
    REQUIRE(c.core.PrefillDone(job.prefill, "r", IncarnationOf(job.decode), c.now));
    REQUIRE(c.core.TokensArrived(job.decode, "r", false));
    Take(c.core);
  }
}

TEST_CASE("RouterCore ends a request that hangs a third worker without a new token") {
  const bool another_is_left = GENERATE(true, false);
  WatchedCluster c;
  Job job = Bring(c, Stage::kDecoding);
  for (int hangs = 1; hangs < kMostLostWorkers; ++hangs) {
    const std::string old = job.decode;
    job = LastJob(c.Hang(old));
    if (another_is_left || hangs + 1 < kMostLostWorkers) c.Resume(old);
    c.Run(absl::Minutes(2));
    REQUIRE(c.core.PrefillDone(job.prefill, "r", IncarnationOf(job.decode), c.now));
    c.core.StepStarted("r");
    Take(c.core);
  }
  CHECK(Has(c.Hang(job.decode), "end r INTERNAL"));
}

TEST_CASE("RouterCore moves a request at most three times to workers whose steps never had it") {
  WatchedCluster c;
  Job job = Bring(c, Stage::kStarting);
  int moves = 0;
  for (int i = 0; i < 10; ++i) {
    const std::string old = job.decode;
    const Lines lines = c.Hang(old);
    moves += static_cast<int>(lines.size() > 1);
    if (lines.size() > 1) job = LastJob(lines);
    c.Resume(old);
    c.Run(absl::Minutes(2));
    c.core.PrefillDone(job.prefill, "r", IncarnationOf(job.decode), c.now);
    Take(c.core);
  }
  CHECK(moves == kMostMoves);
}

TEST_CASE("RouterCore moves few requests when a worker comes and goes every second") {
  WatchedCluster c;
  int moves = 0, jobs = 0;
  const auto note = [&](const Lines& lines) {
    for (const std::string& line : lines) moves += line.starts_with("hedge");
  };
  for (int i = 0; i < 120; ++i) {
    const Job job = LastJob(c.Submit(Ask(absl::StrCat("r", i))));
    jobs += job.prefill == kP;
    const bool runs = i % 5 == 0;
    runs ? static_cast<void>(c.stopped.erase(kP)) : static_cast<void>(c.stopped.insert(kP));
    c.Run(absl::Seconds(1));
    note(Take(c.core));
    c.core.Cancel(absl::StrCat("r", i));
    Take(c.core);
  }
  CHECK(jobs >= moves);
  CHECK(moves <= 4);
}

TEST_CASE("RouterCore moves a stream from a hung worker when another worker attaches") {
  WatchedCluster c;
  const Job job = Bring(c, Stage::kDecoding);
  c.core.WorkerLost(job.OtherDecode(), c.now);
  c.loads.erase(job.OtherDecode());
  for (const std::string& line : c.Hang(job.decode)) CHECK_FALSE(line.starts_with("prefill"));
  c.core.WorkerAttached(job.OtherDecode(), Info(WorkerRole::kDecode, job.OtherDecode(), 24), c.now);
  CHECK(LastJob(Take(c.core)).decode == job.OtherDecode());
}

TEST_CASE("RouterCore hedges again after a refusal while workers report by turns") {
  WatchedCluster c;
  const Job former = Bring(c, Stage::kPrefilling);
  const Job hedge = LastJob(c.Silence(former.prefill));
  int hedges = 0;
  for (int i = 0; i < 200; ++i) {
    const RouterCore::Failure refusal = Full(absl::Milliseconds(20), /*at_decode=*/false);
    if (i % 20 == 0) c.core.Failed(hedge.prefill, "r", refusal, c.now);
    // Reports come more often than ticks are due after a report.
    const std::array links{hedge.prefill, std::string(kD), std::string(kD2)};
    const std::string& link = links[static_cast<size_t>(i % 3)];
    c.core.WorkerLoaded(link, c.loads[link], c.now += absl::Milliseconds(33));
    if (c.now >= c.core.NextTick()) c.core.Tick(c.now);
    for (const std::string& line : Take(c.core)) hedges += line.starts_with("hedge");
  }
  CHECK(hedges > 3);
}

}  // namespace
}  // namespace baton
