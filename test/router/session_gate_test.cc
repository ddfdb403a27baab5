#include "router/session_gate.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/strings.h"
#include "catch.h"
#include "router/request.h"
#include "seeds.h"

namespace baton {
namespace {

// Returns the session of a request with the id TENANT:SESSION:NUMBER.
SessionKey KeyOf(const RequestId& id) {
  const size_t first = id.find(':'), last = id.rfind(':');
  return {id.substr(0, first), id.substr(first + 1, last - first - 1)};
}

class DrivenGate {
 public:
  explicit DrivenGate(SessionLimits limits) : gate(limits) {}
  Request& At(const RequestId& id) {
    std::unique_ptr<Request>& record = records_[id];
    if (record == nullptr) record = std::make_unique<Request>();
    record->id = id;
    return *record;
  }
  absl::Status Arrive(const RequestId& id, bool needed = false) { return gate.Arrived(At(id), KeyOf(id), needed, now); }
  // Prefills a prompt of 160 tokens, whose KV the session had before, if it was prefilled before.
  // The prefill waited for longer than it was computed.
  void Prefilled(const RequestId& id, bool lost, bool awaited = true, const WorkerAddress& worker = "p") {
    std::vector<BlockKey> keys(10);
    keys.back().bytes.front() = static_cast<uint8_t>(KeyOf(id).name.front());
    gate.Prefilled(KeyOf(id),
                   {.worker = worker,
                    .keys = keys,
                    .found = lost ? 0 : 150,
                    .computed = lost ? 159 : 9,
                    .queued = absl::Seconds(2),
                    .compute = absl::Seconds(1),
                    .awaited = awaited},
                   now);
    gate.CheckInvariants();
  }
  // Lets all these requests arrive. Returns those that are admitted.
  std::string ArriveAll(std::initializer_list<const char*> ids) {
    for (const char* id : ids) REQUIRE(Arrive(id).ok());
    return Admitted();
  }
  std::string End(const RequestId& id) {
    gate.Ended(At(id), now);
    return Admitted();
  }
  std::string Wait(absl::Duration time) {
    for (const absl::Time until = now + time; now < until;) {
      now = std::min(until, std::max(now, gate.NextTick()));
      gate.Tick(now);
    }
    return Admitted();
  }
  std::string Admitted() {
    gate.CheckInvariants();
    return absl::StrJoin(gate.TakeAdmitted(), " ",
                         [](std::string* out, const Request* record) { absl::StrAppend(out, record->id); });
  }

  SessionGate gate;
  absl::Time now = absl::UnixEpoch();

 private:
  std::map<RequestId, std::unique_ptr<Request>> records_;  // live or ended
};

TEST_CASE("SessionGate admits active sessions at once and holds others") {
  DrivenGate d({.sessions = 2});
  CHECK(d.ArriveAll({"t:a:1", "t:b:1", "t:c:1", "t:a:2", "t:c:2"}) == "t:a:1 t:b:1 t:a:2");
  CHECK(d.gate.counts() == SessionGate::Counts{.active = 2, .waiting = 1, .waiting_requests = 2});
  CHECK(d.End("t:a:1") == "");  // the other request runs
  CHECK(d.End("t:a:2") == "");
  // An idle session keeps its slot for some time, for its next turn.
  CHECK(d.Wait(absl::Seconds(1)) == "");
  CHECK(d.ArriveAll({"t:a:3"}) == "t:a:3");
  CHECK(d.End("t:a:3") == "");
  CHECK(d.Wait(absl::Minutes(1)) == "t:c:1 t:c:2");
}

TEST_CASE("SessionGate alternates between tenants and keeps a tenant's order") {
  DrivenGate d({.sessions = 1, .keep = {}, .shortest_linger = {}, .longest_linger = {}});
  CHECK(d.ArriveAll({"a:1:1"}) == "a:1:1");
  CHECK(d.ArriveAll({"a:2:1", "a:3:1", "a:4:1", "c:1:1", "b:1:1", "b:2:1", "c:1:2"}) == "");
  std::string order;
  for (std::string last = "a:1:1"; !last.empty();) {
    d.gate.Ended(d.At(last), d.now);
    d.gate.Tick(d.now);
    last = d.Admitted();
    absl::StrAppend(&order, last, ", ");
    if (last == "c:1:1 c:1:2") {
      d.gate.Ended(d.At("c:1:1"), d.now);
      last = "c:1:2";
    }
  }
  CHECK(order == "b:1:1, c:1:1 c:1:2, a:2:1, b:2:1, a:3:1, a:4:1, , ");
}

TEST_CASE("SessionGate takes the slot of the session that is idle for longest") {
  DrivenGate d({.sessions = 3});
  CHECK(d.ArriveAll({"t:a:1", "t:b:1", "t:c:1", "t:d:1"}) == "t:a:1 t:b:1 t:c:1");
  d.End("t:b:1");
  d.Wait(absl::Milliseconds(100));
  d.End("t:a:1");
  d.Wait(absl::Milliseconds(100));
  CHECK(d.Wait(d.gate.linger() - absl::Milliseconds(201)) == "");
  CHECK(d.Wait(absl::Milliseconds(1)) == "t:d:1");
  CHECK(d.ArriveAll({"t:a:2"}) == "t:a:2");  // session a still has its slot
  CHECK(d.ArriveAll({"t:b:2"}) == "");       // session b has lost its slot
}

TEST_CASE("SessionGate keeps a slot for longer than the usual pause") {
  DrivenGate d({.sessions = 1});
  d.ArriveAll({"t:a:0"});
  for (int i = 0; i < 200; ++i) {
    d.End(absl::StrCat("t:a:", i));
    d.Wait(absl::Milliseconds(2));
    d.ArriveAll({absl::StrCat("t:a:", i + 1).c_str()});
  }
  CHECK(d.gate.linger() == absl::Milliseconds(100));
  for (int i = 200; i < 400; ++i) {
    d.End(absl::StrCat("t:a:", i));
    // Some turns follow a tool call.
    d.Wait(i % 4 == 0 ? absl::Seconds(2) : absl::ZeroDuration());
    d.ArriveAll({absl::StrCat("t:a:", i + 1).c_str()});
  }
  CHECK(d.gate.linger() > absl::Seconds(5));
  // A pause of an hour is not learned.
  d.End("t:a:400");
  d.Wait(absl::Hours(1));
  d.ArriveAll({"t:a:401"});
  CHECK(d.gate.linger() > absl::Seconds(5));
}

TEST_CASE("SessionGate limits the effect of one long pause") {
  DrivenGate d({.sessions = 1});
  d.ArriveAll({"t:a:1"});
  d.End("t:a:1");
  d.Wait(absl::Seconds(29));
  CHECK(d.ArriveAll({"t:a:2"}) == "t:a:2");
  CHECK(d.gate.linger() > absl::Seconds(2));
  CHECK(d.gate.linger() < absl::Seconds(6));
}

TEST_CASE("SessionGate drops an abandoned session") {
  DrivenGate d({.sessions = 2});
  CHECK(d.ArriveAll({"t:a:1", "t:b:1"}) == "t:a:1 t:b:1");
  d.End("t:a:1");
  d.Wait(absl::Minutes(2));
  CHECK(d.gate.counts() == SessionGate::Counts{.active = 1});
  d.End("t:b:1");
  d.Wait(absl::Minutes(2));
  CHECK(d.gate.counts() == SessionGate::Counts{});
  CHECK(d.gate.NextTick() == absl::InfiniteFuture());
}

TEST_CASE("SessionGate ends the quantum of a session that never pauses") {
  DrivenGate d({.sessions = 1, .quantum = absl::Seconds(10)});
  CHECK(d.ArriveAll({"t:a:1", "t:b:1"}) == "t:a:1");
  d.Wait(absl::Seconds(11));
  CHECK(d.ArriveAll({"t:a:2"}) == "");
  CHECK(d.End("t:a:1") == "t:b:1");
  // The slot goes back in the same way.
  CHECK(d.End("t:b:1") == "");
  CHECK(d.Wait(absl::Seconds(5)) == "t:a:2");
  // Without other sessions, a session may continue without limit.
  d.Wait(absl::Seconds(11));
  CHECK(d.ArriveAll({"t:a:3"}) == "t:a:3");
}

TEST_CASE("SessionGate frees other slots while an expired session runs") {
  DrivenGate d({.sessions = 3, .quantum = absl::Seconds(10)});
  CHECK(d.ArriveAll({"t:busy:1", "t:idle:1", "a:busy:1"}) == "t:busy:1 t:idle:1 a:busy:1");
  d.Wait(absl::Seconds(11));
  CHECK(d.ArriveAll({"b:first:1", "t:busy:2", "a:busy:2", "t:next:1"}) == "");
  // The cancelled request leaves a session whose quantum has expired as the first of each tenant.
  CHECK(d.End("b:first:1") == "");
  CHECK(d.ArriveAll({"b:next:1", "t:more:1"}) == "");
  CHECK(d.End("t:idle:1") == "b:next:1");
  CHECK(d.End("b:next:1") == "");
  CHECK(d.Wait(d.gate.linger()) == "t:next:1");
  // The slot of a session is free when its running requests have ended. It precedes later
  // sessions.
  CHECK(d.End("t:busy:1") == "t:busy:2");
  CHECK(d.End("a:busy:1") == "a:busy:2");
  CHECK(d.gate.counts() == SessionGate::Counts{.active = 3, .waiting = 1, .waiting_requests = 1});
}

TEST_CASE("SessionGate renews expired sessions when no session waits for a slot") {
  DrivenGate d({.sessions = 2, .quantum = absl::Seconds(10)});
  CHECK(d.ArriveAll({"t:a:1", "u:b:1", "t:c:1"}) == "t:a:1 u:b:1");
  d.Wait(absl::Seconds(11));
  CHECK(d.ArriveAll({"u:b:2", "t:a:2", "t:a:3"}) == "");
  SECTION("the last waiting session is cancelled") { CHECK(d.End("t:c:1") == "u:b:2 t:a:2 t:a:3"); }
  SECTION("the last waiting session gets a slot") {
    CHECK(d.End("u:b:1") == "t:c:1");
    CHECK(d.End("t:c:1") == "");
    CHECK(d.Wait(d.gate.linger()) == "u:b:2 t:a:2 t:a:3");
  }
  d.Wait(absl::Seconds(5));
  // The session has a new quantum.
  CHECK(d.ArriveAll({"t:d:1", "t:a:4"}) == "t:a:4");
}

TEST_CASE("SessionGate admits a needed request beyond the limit") {
  DrivenGate d({.sessions = 1});
  CHECK(d.ArriveAll({"t:a:1", "t:b:1", "t:b:2", "t:c:1"}) == "t:a:1");
  d.gate.Needed(d.At("t:b:2"), d.now);
  CHECK(d.Admitted() == "t:b:1 t:b:2");  // the whole session is active now
  REQUIRE(d.Arrive("t:d:1", /*needed=*/true).ok());
  CHECK(d.Admitted() == "t:d:1");
  CHECK(d.gate.counts() == SessionGate::Counts{.active = 3, .waiting = 1, .waiting_requests = 1});
  // These sessions count: all of them must leave before another one is admitted.
  for (const char* id : {"t:b:1", "t:b:2", "t:d:1"}) CHECK(d.End(id) == "");
  CHECK(d.Wait(absl::Minutes(1)) == "");
  CHECK(d.End("t:a:1") == "");
  CHECK(d.Wait(absl::Minutes(1)) == "t:c:1");
}

TEST_CASE("SessionGate removes waiting requests and refuses too many") {
  DrivenGate d({.sessions = 1, .waiting_requests = 2});
  CHECK(d.ArriveAll({"t:a:1", "t:b:1", "t:c:1"}) == "t:a:1");
  const absl::Status refused = d.Arrive("t:d:1");
  CHECK(absl::IsResourceExhausted(refused));
  CHECK(Message(refused) ==
        "overloaded: 1 sessions are active, limit 1, and 2 requests of other sessions wait, limit 2 (--max-requests / "
        "2)");
  CHECK(d.At("t:d:1").session.state == SessionGate::State::kUnknown);
  CHECK(d.ArriveAll({"t:a:2"}) == "t:a:2");  // of an active session
  CHECK(d.End("t:b:1") == "");               // cancelled
  CHECK(d.ArriveAll({"t:d:2"}) == "");
  d.End("t:a:1");
  d.End("t:a:2");
  CHECK(d.Wait(absl::Seconds(5)) == "t:c:1");
}

// --- by what sessions lose -----------------------------------------------------------------------

TEST_CASE("SessionGate parks the youngest sessions when active ones lose their KV") {
  DrivenGate d({});
  const std::vector<RequestId> first{"t:a:1", "t:b:1", "t:c:1", "t:d:1"};
  for (const RequestId& id : first) CHECK(d.ArriveAll({id.c_str()}) == id);
  for (int i = 0; i < 9; ++i) {
    CHECK(d.gate.limit() == 0);
    for (const RequestId& id : first) d.Prefilled(id, i == 0 || i > 7);
  }
  CHECK(d.gate.limit() == 2);
  CHECK(d.ArriveAll({"t:e:1"}) == "");
  for (const RequestId& id : first) CHECK(d.End(id) == "");
  CHECK(d.ArriveAll({"t:d:2", "t:c:2", "t:a:2", "t:b:2"}) == "t:a:2 t:b:2");
  CHECK(d.gate.counts() == SessionGate::Counts{.active = 2, .waiting = 3, .waiting_requests = 3});
  // Parked sessions precede later ones. The oldest is first.
  d.End("t:a:2");
  CHECK(d.Wait(d.gate.linger()) == "t:c:2");
  d.End("t:c:2");
  CHECK(d.Wait(d.gate.linger()) == "t:d:2");
  d.End("t:d:2");
  CHECK(d.Wait(d.gate.linger()) == "t:e:1");
}

TEST_CASE("SessionGate counts loss only at the same worker and for awaited prefills") {
  DrivenGate d({});
  for (const char* id : {"t:a:1", "t:b:1"}) CHECK(d.ArriveAll({id}) == id);
  SECTION("KV from before the session was active does not count") {
    for (int i = 0; i < 100; ++i) {
      d.Prefilled("t:a:1", true);
      d.End("t:a:1");
      d.Wait(absl::Minutes(2));
      d.ArriveAll({"t:a:1"});
    }
  }
  SECTION("KV of an unknown session does not count") {
    for (int i = 0; i < 100; ++i) d.Prefilled("t:unknown:1", true);
  }
  SECTION("KV at another worker does not count") {
    for (int i = 0; i < 100; ++i) d.Prefilled("t:a:1", true, true, std::to_string(i));
  }
  SECTION("KV of a lost worker does not count") {
    for (int i = 0; i < 100; ++i) {
      d.Prefilled("t:a:1", true);
      d.gate.WorkerLost("p");
    }
  }
  SECTION("a shadow prefill does not count") {
    for (int i = 0; i < 100; ++i) d.Prefilled("t:a:1", true, false);
  }
  CHECK(d.gate.limit() == 0);
}

TEST_CASE("SessionGate always allows the sessions that fit in half of KV memory") {
  DrivenGate d({});
  d.ArriveAll({"t:a:1"});
  SECTION("at least one session is allowed") {
    for (int i = 0; i < 500; ++i) d.Prefilled("t:a:1", true);
    CHECK(d.gate.limit() == 1);
    CHECK(d.ArriveAll({"t:b:1"}) == "");
    CHECK(d.ArriveAll({"t:a:2"}) == "t:a:2");
    d.End("t:a:1");
    d.End("t:a:2");
    CHECK(d.Wait(d.gate.linger()) == "t:b:1");
  }
  const auto prefill_at = [&](std::initializer_list<const char*> workers) {
    for (const char* id : {"t:b:1", "t:c:1", "t:d:1", "t:e:1", "t:f:1"}) d.ArriveAll({id});
    for (int i = 0; i < 100; ++i) {
      for (const char* id : {"t:a:1", "t:b:1", "t:c:1", "t:d:1", "t:e:1", "t:f:1"}) {
        for (const char* worker : workers) d.Prefilled(id, true, true, worker);
      }
    }
  };
  SECTION("half of KV memory holds three sessions") {
    d.gate.SetCapacity({.blocks = 60});
    prefill_at({"p"});
    CHECK(d.gate.limit() == 3);
  }
  SECTION("host memory allows no further sessions") {
    d.gate.SetCapacity({.blocks = 60, .host_blocks = 1000});
    prefill_at({"p"});
    CHECK(d.gate.limit() == 3);
  }
  SECTION("each session has KV at the workers of two modules") {
    d.gate.SetCapacity({.blocks = 120});
    prefill_at({"p", "q"});
    CHECK(d.gate.limit() == 3);
  }
}

TEST_CASE("SessionGate reports no request that ended before it was taken") {
  DrivenGate d({.sessions = 2});
  REQUIRE(d.Arrive("t:a:1").ok());
  REQUIRE(d.Arrive("t:b:1").ok());
  d.gate.Ended(d.At("t:a:1"), d.now);
  CHECK(d.Admitted() == "t:b:1");
}

// --- at random -----------------------------------------------------------------------------------

class RandomSessions {
 public:
  explicit RandomSessions(uint64_t seed) : random_(seed), limit_(Below(5)), gate_(Limits()) {}

  void Run() {
    for (int step = 0; step < 400; ++step) Step(Below(100));
    // Every waiting request is admitted, if requests end.
    for (int step = 0; !waiting_.empty(); ++step) {
      REQUIRE(step < 10'000);
      if (!running_.empty()) End(Any(running_));
      Pass(absl::Milliseconds(200));
    }
    while (!running_.empty()) End(Any(running_));
    Pass(absl::Hours(1));
    REQUIRE(gate_.counts() == SessionGate::Counts{});
    REQUIRE(gate_.NextTick() == absl::InfiniteFuture());
  }

 private:
  SessionLimits Limits() {
    return {.sessions = limit_, .waiting_requests = 20, .quantum = absl::Seconds(Below(2) == 0 ? 1 : 100)};
  }
  Request& At(const RequestId& id) {
    std::unique_ptr<Request>& record = records_[id];
    if (record == nullptr) record = std::make_unique<Request>();
    record->id = id;
    return *record;
  }
  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  RequestId Any(const std::set<RequestId>& ids) { return *std::next(ids.begin(), Below(static_cast<int>(ids.size()))); }

  void Step(int what) {
    if (what < 40) {
      const RequestId id = absl::StrCat("t", Below(3), ":s", Below(5), ":", ++arrivals_);
      const bool needed = Below(20) == 0;
      beyond_ += needed;
      const absl::Status status = gate_.Arrived(At(id), KeyOf(id), needed, now_);
      if (status.ok()) waiting_.insert(id);
      if (!status.ok()) REQUIRE(waiting_.size() >= 20);
    } else if (what < 65) {
      if (!running_.empty()) End(Any(running_));
    } else if (what < 70) {
      if (!waiting_.empty()) End(Any(waiting_));
    } else if (what < 73) {
      if (!waiting_.empty()) gate_.Needed(At(Any(waiting_)), now_);
      ++beyond_;
    } else if (what < 87) {
      for (int i = Below(40); i > 0 && !running_.empty(); --i) Prefilled(KeyOf(Any(running_)));
      if (Below(4) == 0) gate_.WorkerLost(std::to_string(Below(2)));
    } else {
      Pass(absl::Milliseconds(Below(300)));
    }
    Check();
  }

  void Prefilled(const SessionKey& key) {
    std::vector<BlockKey> keys(static_cast<size_t>(1 + Below(3)));
    keys.back().bytes.front() = static_cast<uint8_t>(keys.size());
    const SessionGate::Prefill prefill{.worker = std::to_string(Below(2)),
                                       .keys = keys,
                                       .found = Below(40),
                                       .computed = Below(50),
                                       .queued = absl::Seconds(1),
                                       .compute = {},
                                       .awaited = Below(3) > 0};
    gate_.Prefilled(key, prefill, now_);
  }

  void End(const RequestId& id) {
    waiting_.erase(id);
    running_.erase(id);
    gate_.Ended(At(id), now_);
    Check();
  }

  void Pass(absl::Duration time) {
    now_ += time;
    gate_.Tick(now_);
    Check();
  }

  void Check() {
    gate_.CheckInvariants();
    for (const Request* record : gate_.TakeAdmitted()) {
      REQUIRE(waiting_.erase(record->id) == 1);
      running_.insert(record->id);
    }
    for (const RequestId& id : running_) REQUIRE(At(id).session.state == SessionGate::State::kAdmitted);
    for (const RequestId& id : waiting_) REQUIRE(At(id).session.state == SessionGate::State::kWaiting);
    std::set<SessionKey> active;
    for (const RequestId& id : running_) active.insert(KeyOf(id));
    const SessionGate::Counts counts = gate_.counts();
    REQUIRE(counts.active >= std::ssize(active));
    if (limit_ > 0) REQUIRE(counts.active <= limit_ + beyond_);
    if (counts.active <= limit_) beyond_ = 0;
    REQUIRE(counts.waiting_requests == std::ssize(waiting_));
    // If sessions wait for a slot, no slot is free. A session that has a slot waits only if
    // other sessions wait for one.
    const bool some_want_a_place =
        std::ranges::any_of(waiting_, [&](const RequestId& id) { return !active.contains(KeyOf(id)); });
    REQUIRE(some_want_a_place == !waiting_.empty());
    if (some_want_a_place) REQUIRE((gate_.limit() > 0 && counts.active >= gate_.limit()));
  }

  std::mt19937 random_;
  const int32_t limit_;                                    // 0: SessionWindow's
  std::map<RequestId, std::unique_ptr<Request>> records_;  // live or ended
  SessionGate gate_;
  absl::Time now_ = absl::UnixEpoch();
  int arrivals_ = 0;
  // Sessions that may exceed the limit, since it was last kept.
  int beyond_ = 0;
  std::set<RequestId> running_, waiting_;
};

TEST_CASE("SessionGate keeps its limit and admits every session in random runs") {
  ForEachSeed(200, [](uint64_t seed) { RandomSessions(seed).Run(); });
}

TEST_CASE("SessionGate lists running, waiting and latest sessions") {
  DrivenGate d({.sessions = 2});
  CHECK(d.gate.Latest(9).empty());
  d.ArriveAll({"a:one:1", "a:two:1", "b:three:1", "b:three:2"});
  // Session a:one keeps its slot until another session needs it.
  d.End("a:one:1");
  const auto names = [&d](size_t most) {
    std::string text;
    for (const SessionGate::View& view : d.gate.Latest(most)) {
      absl::StrAppend(&text, view.key.tenant, ":", view.key.name, view.active ? " active " : " waits ", view.running,
                      "+", view.waiting, "; ");
    }
    return text;
  };
  // Running sessions, then waiting sessions, then the latest.
  CHECK(names(9) == "a:two active 1+0; b:three waits 0+2; a:one active 0+0; ");
  CHECK(names(1) == "a:two active 1+0; ");

  DrivenGate free({});
  free.ArriveAll({"a:x:1"});
  free.Prefilled("a:x:1", /*lost=*/false);
  REQUIRE(free.gate.Latest(1).size() == 1);
  CHECK(free.gate.Latest(1)[0].blocks == 10);
}

}  // namespace
}  // namespace baton
