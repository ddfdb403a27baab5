#include "router/workload.h"

#include <limits>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "router/request.h"
#include "seeds.h"
#include "world/dispatcher_world.h"

namespace baton {
namespace {

// A prompt token costs a millisecond, and an output token costs a second.
WorkloadOptions Options() {
  WorkloadOptions options;
  options.bound = absl::Seconds(100);
  options.per_prompt_token = absl::Milliseconds(1);
  options.per_output_token = absl::Seconds(1);
  options.keep = absl::Seconds(60);
  return options;
}

// An arriving request.
struct Arrival {
  RequestId id{};
  std::string cache_domain{};
  std::string model{};
  std::string workflow{}, agent{};
  std::vector<RequestId> upstreams{};  // some may have ended
  int32_t priority = 0;
  int64_t prompt_tokens = 0, expected_tokens = 0;
};

// A workload and its requests. Tests name requests by id.
class LoadById {
 public:
  explicit LoadById(const WorkloadOptions& options) : load_(options) {}

  void Arrived(const Arrival& arrival, absl::Time now) {
    Request& record = At(arrival.id);
    record.asked.spec.cache_domain = arrival.cache_domain;
    ServedModel& model = models_[arrival.model];
    model.name = arrival.model;
    record.asked.served = &model;
    record.asked.workflow = arrival.workflow;
    record.asked.agent = arrival.agent;
    record.asked.spec.priority = arrival.priority;
    const Request* upstream = nullptr;
    for (const RequestId& id : arrival.upstreams) {
      if (upstream == nullptr && At(id).work.workflow != nullptr) upstream = &At(id);
    }
    load_.Arrived(record, {arrival.prompt_tokens, arrival.expected_tokens}, upstream, now);
  }
  void Prefilled(const RequestId& id) { load_.Prefilled(At(id)); }
  void Made(const RequestId& id, int64_t tokens) { load_.Made(At(id), tokens); }
  void Ended(const RequestId& id, absl::Time now) { load_.Ended(At(id), now); }
  void Tick(absl::Time now) { load_.Tick(now); }
  absl::Duration ArrivalOffset(const RequestId& id, absl::Time now) const { return load_.ArrivalOffset(At(id), now); }
  size_t workflows() const { return load_.workflows(); }
  void CheckInvariants() const { load_.CheckInvariants(); }

 private:
  Request& At(const RequestId& id) const {
    std::unique_ptr<Request>& record = records_[id];
    if (record == nullptr) record = std::make_unique<Request>();
    record->id = id;
    return *record;
  }

  std::map<std::string, ServedModel> models_;
  mutable std::map<RequestId, std::unique_ptr<Request>> records_;  // live or ended
  Workload load_;
};

struct World {
  absl::Time now = absl::UnixEpoch();
  LoadById load{Options()};

  void Arrive(const Arrival& arrival) {
    load.Arrived(arrival, now);
    load.CheckInvariants();
  }
  // Returns the request's arrival offset in seconds.
  double Offset(const RequestId& id) const { return absl::ToDoubleSeconds(load.ArrivalOffset(id, now)); }
  void Finish(const RequestId& id, int64_t tokens) {
    load.Made(id, tokens);
    load.Ended(id, now);
    load.CheckInvariants();
  }
  void Wait(double seconds) {
    now += absl::Seconds(seconds);
    load.Tick(now);
    load.CheckInvariants();
  }
};

TEST_CASE("Workload orders a request by remaining work up to the bound") {
  World world;
  world.Arrive({.id = "r", .prompt_tokens = 2000, .expected_tokens = 10});
  CHECK(world.Offset("r") == 12);
  world.load.Prefilled("r");
  CHECK(world.Offset("r") == 10);
  world.load.Made("r", 4);
  CHECK(world.Offset("r") == 6);
  world.load.Made("r", 40);  // more than was expected
  CHECK(world.Offset("r") == 0);
  world.Arrive({.id = "unknown", .expected_tokens = 50});
  CHECK(world.Offset("unknown") == 50);
  world.Arrive({.id = "huge", .prompt_tokens = int64_t{1} << 31, .expected_tokens = (int64_t{1} << 31) - 1});
  CHECK(world.Offset("huge") == 100);
  world.Wait(7);
  CHECK(world.Offset("unknown") == 43);
  CHECK(world.Offset("nobody") == 0);
  world.load.Prefilled("nobody");
  world.Finish("nobody", 3);
}

TEST_CASE("Workload shares the work of a workflow among its requests") {
  World world;
  for (const char* id : {"a1", "a2", "a3"}) {
    world.Arrive({.id = id, .workflow = "a", .expected_tokens = 10});
  }
  CHECK(world.Offset("a1") == 30);
  CHECK(world.Offset("a3") == 30);
  world.Arrive({.id = "other tenant", .cache_domain = "t", .workflow = "a", .expected_tokens = 10});
  CHECK(world.Offset("other tenant") == 10);
  world.Finish("a1", 10);
  world.Finish("a2", 10);
  world.Arrive({.id = "b", .workflow = "b", .expected_tokens = 11});
  CHECK(world.Offset("a3") == 10);
  CHECK(world.Offset("b") == 11);
}

TEST_CASE("Workload counts a workflow's arrival as at most the bound before the request") {
  World world;
  world.Arrive({.id = "a1", .workflow = "a", .expected_tokens = 10});
  world.Finish("a1", 10);
  world.Wait(40);  // shorter than `keep`
  world.Arrive({.id = "a2", .workflow = "a", .expected_tokens = 10});
  CHECK(world.Offset("a2") == -30);
  world.Wait(40);
  world.Arrive({.id = "a3", .workflow = "a", .expected_tokens = 0});
  world.Finish("a2", 10);
  world.Wait(40);
  world.Arrive({.id = "a4", .workflow = "a", .expected_tokens = 10});
  CHECK(world.Offset("a4") == -90);  // 120 s after its workflow, of which 100 count
  world.Finish("a3", 0);
  world.Finish("a4", 10);
  world.Wait(60);
  CHECK(world.load.workflows() == 0);
  world.Arrive({.id = "a5", .workflow = "a", .expected_tokens = 10});
  CHECK(world.Offset("a5") == 10);  // another workflow with that name
}

TEST_CASE("Workload adds a request without workflow to that of its upstream") {
  World world;
  world.Arrive({.id = "up", .expected_tokens = 10});
  world.Arrive({.id = "down", .upstreams = {"gone", "up"}, .expected_tokens = 5});
  CHECK(world.Offset("up") == 15);
  CHECK(world.Offset("down") == 15);
  world.Finish("up", 10);
  CHECK(world.Offset("down") == 5);
  world.Finish("down", 5);
  // The workflow has no name, so no later request can belong to it.
  CHECK(world.load.workflows() == 0);
}

TEST_CASE("Workload learns the work that follows an agent from earlier workflows") {
  World world;
  const auto run = [&](const std::string& workflow) {
    double first = 0;
    for (const char* agent : {"plan", "write", "check"}) {
      const RequestId id = absl::StrCat(workflow, agent);
      world.Arrive({.id = id, .workflow = workflow, .agent = agent, .expected_tokens = 10});
      if (first == 0) first = world.Offset(id);
      if (agent == std::string("check")) CHECK(world.Offset(id) == 10);
      world.Finish(id, 10);
    }
    return first;
  };
  CHECK(run("one") == 10);
  CHECK(run("two") == 10);  // requests of workflow one may still arrive
  world.Wait(60);
  CHECK(run("three") == 30);
}

TEST_CASE("Workload drops the oldest idle workflows when there are too many") {
  WorkloadOptions options = Options();
  options.idle_workflows = 3;
  LoadById load(options);
  load.Arrived({.id = "live", .workflow = "live", .expected_tokens = 1}, absl::UnixEpoch());
  for (int i = 0; i < 10; ++i) {
    const absl::Time now = absl::UnixEpoch() + absl::Seconds(i);
    load.Arrived({.id = "r", .workflow = absl::StrCat(i), .expected_tokens = 1}, now);
    load.Ended("r", now);
    load.CheckInvariants();
  }
  CHECK(load.workflows() == 4);
}

TEST_CASE("Workload weighs one level of priority more than length and age") {
  World world;
  world.Arrive({.id = "old", .workflow = "w", .expected_tokens = 0});
  world.Wait(1000);
  world.Arrive({.id = "short", .workflow = "w", .expected_tokens = 0});
  world.Arrive({.id = "long", .priority = 1, .expected_tokens = 1000});
  CHECK(world.Offset("short") == -100);
  CHECK(world.Offset("long") == -100);
  world.Arrive({.id = "highest", .priority = 1000, .expected_tokens = 1});
  world.Arrive({.id = "lowest", .priority = -1000, .expected_tokens = 1});
  CHECK(world.Offset("highest") == -19999);  // levels beyond 100 count as 100
  CHECK(world.Offset("lowest") == 20001);
}

// One server that always runs the request with the earliest position, and clients that submit more
// than it can serve.
struct Overload {
  explicit Overload(uint64_t seed) : random(seed) {}

  int64_t Draw(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random); }

  void Arrive() {
    const RequestId id = absl::StrCat("r", arrived.size());
    // Most workflows claim to be short, but some of these last forever. A few are long.
    const bool is_short = Draw(10) != 0;
    const std::string workflow = Draw(2) == 0 ? "" : absl::StrCat("w", Draw(4));
    load.Arrived({.id = id,
                  .workflow = workflow,
                  .agent = absl::StrCat("a", Draw(3)),
                  .expected_tokens = is_short ? 1 + Draw(3) : 200},
                 now);
    arrived[id] = now;
    waiting[id] = now + load.ArrivalOffset(id, now);
  }

  // If `fixed`, returns the position that the request had at its arrival. Otherwise returns its
  // position now.
  absl::Time PositionOf(const RequestId& id, bool fixed) const {
    return fixed ? waiting.at(id) : now + load.ArrivalOffset(id, now);
  }

  RequestId Next(bool fixed) const {
    RequestId first = waiting.begin()->first;
    for (const auto& [id, position] : waiting) {
      if (PositionOf(id, fixed) < PositionOf(first, fixed)) first = id;
    }
    return first;
  }

  std::mt19937_64 random;
  absl::Time now = absl::UnixEpoch();
  LoadById load{Options()};
  std::map<RequestId, absl::Time> arrived, waiting;
};

TEST_CASE("Workload lets no request overtake by more than twice the bound") {
  int overtaken = 0;
  const Seeds seeds = ForEachSeed(40, [&](uint64_t seed) {
    const bool fixed = seed % 2 == 0;
    Overload world(seed);
    for (int step = 0; step < 400; ++step) {
      for (int64_t i = world.Draw(4); i >= 0; --i) world.Arrive();
      const RequestId next = world.Next(fixed);
      for (const auto& [id, position] : world.waiting) {
        CHECK(world.arrived[id] >= world.arrived[next] - 2 * Options().bound);
        overtaken += world.arrived[id] < world.arrived[next];
      }
      world.waiting.erase(next);
      world.now += absl::Seconds(1 + world.Draw(3));
      world.load.Made(next, world.Draw(5));
      world.load.Ended(next, world.now);
      world.load.Tick(world.now);
      world.load.CheckInvariants();
    }
  });
  if (seeds.all()) CHECK(overtaken > 1000);
}

// Returns the mean time from a workflow's first request to the end of its last one, on a server
// that runs one request at a time. Workflows are chains: each request is submitted when the
// previous one has ended.
double MeanWorkflowTime(uint64_t seed, bool shortest_first) {
  struct Chain {
    absl::Time came;
    std::vector<int64_t> lengths;
    size_t done = 0;
  };
  std::mt19937_64 random(seed);
  std::vector<Chain> chains;
  for (int i = 0; i < 30; ++i) {
    const bool is_long = random() % 3 == 0;
    chains.push_back({absl::UnixEpoch() + absl::Seconds(i * 2),
                      std::vector<int64_t>(is_long ? 4 : 1, is_long ? 4 + static_cast<int64_t>(random() % 4) : 1)});
  }
  LoadById load(Options());
  std::map<std::pair<absl::Time, size_t>, size_t> waiting;  // chains, by (position, sequence)
  size_t sequence = 0, come = 0, ended = 0;
  absl::Duration sum;
  absl::Time now = absl::UnixEpoch();
  const auto submit = [&](size_t i) {
    // An orchestrator submits its whole chain at once. Here, expected_tokens stands for the
    // remaining chain.
    int64_t left = 0;
    for (size_t j = chains[i].done; j < chains[i].lengths.size(); ++j) left += chains[i].lengths[j];
    load.Arrived({.id = absl::StrCat(i), .workflow = absl::StrCat(i), .expected_tokens = left}, now);
    waiting[{now + (shortest_first ? load.ArrivalOffset(absl::StrCat(i), now) : absl::ZeroDuration()), sequence++}] = i;
  };
  while (ended < chains.size()) {
    for (; come < chains.size() && chains[come].came <= now; ++come) submit(come);
    if (waiting.empty()) {
      now = chains[come].came;
      continue;
    }
    const size_t i = waiting.begin()->second;
    waiting.erase(waiting.begin());
    Chain& chain = chains[i];
    now += absl::Seconds(chain.lengths[chain.done++]);
    load.Ended(absl::StrCat(i), now);
    if (chain.done < chain.lengths.size()) {
      submit(i);
    } else {
      sum += now - chain.came;
      ++ended;
    }
  }
  return absl::ToDoubleSeconds(sum) / static_cast<double>(chains.size());
}

TEST_CASE("Workload shortens the mean time of workflows under load") {
  double shortest_first = 0, first_come = 0;
  const Seeds seeds = ForEachSeed(50, [&](uint64_t seed) {
    shortest_first += MeanWorkflowTime(seed, true);
    first_come += MeanWorkflowTime(seed, false);
  });
  const auto count = static_cast<double>(seeds.count());
  CAPTURE(shortest_first / count, first_come / count);
  if (seeds.all()) CHECK(shortest_first < 0.85 * first_come);
}

// --- the lengths that a dispatcher expects

// Submits a request, and returns the length that its prefill job states.
int32_t ExpectedOf(Driven& d, const RequestId& id, const std::string& cache_domain, const std::string& agent,
                   int32_t stated = 0) {
  ClientRequest request = d.Request(id, "p", /*max_tokens=*/50);
  request.spec.cache_domain = cache_domain;
  request.agent = agent;
  request.expected_tokens = stated;
  REQUIRE(d.Submit(std::move(request)).ok());
  d.Take();
  return d.expected_tokens.at(0);
}

TEST_CASE("Dispatcher sends workers the length of the agent's last outputs") {
  Driven d;
  CHECK(ExpectedOf(d, "first", "", "judge") == 50);  // at most max_tokens
  d.Prefilled("first");
  d.Made(d.NameOf("first"), "12345678", FinishReason::kStop);
  d.Take();
  CHECK(ExpectedOf(d, "second", "", "judge") == 8);
  CHECK(ExpectedOf(d, "other agent", "", "writer") == 8);
  CHECK(ExpectedOf(d, "other tenant", "t", "judge") == 50);
  SECTION("an output that was cut off counts as at least the expected length") {
    d.Prefilled("second");
    d.Made(d.NameOf("second"), "123", FinishReason::kLength);
    d.Take();
    CHECK(ExpectedOf(d, "third", "", "judge") == 8);
  }
  SECTION("a client's statement counts only if it is larger") {
    CHECK(ExpectedOf(d, "less", "", "judge", 1) == 8);
    CHECK(ExpectedOf(d, "more", "", "judge", 20) == 20);
    CHECK(ExpectedOf(d, "too many", "", "judge", std::numeric_limits<int32_t>::max()) == 50);
  }
}

TEST_CASE("Dispatcher orders a request by the length that its client states") {
  Driven d(/*shortest_first=*/true);
  d.now += absl::Hours(1);
  const auto offset = [&](const RequestId& id, int32_t stated) {
    ExpectedOf(d, id, "", "", stated);
    return d.arrival_offsets.at(0);
  };
  const absl::Duration unknown = offset("unknown", 0), brief = offset("brief", 1);
  CHECK(brief < unknown);
  CHECK(offset("long", 1000) == unknown);  // 50 tokens, its limit
}

TEST_CASE("Dispatcher sends the length that it expects when a streaming prompt closes") {
  Driven d;
  ClientRequest request = d.Request("r", "", /*max_tokens=*/0);
  request.has_max_tokens = false;
  request.prompt.segments = {std::vector<TokenId>{'a', 'b'}, Reference{.upstream = "up", .announced = true}};
  request.workflow = "w";
  REQUIRE(d.Submit(std::move(request)).ok());
  d.Take();
  REQUIRE(d.Submit([&] {
             ClientRequest up = d.Request("up", "q");
             up.workflow = "w";
             return up;
           }())
              .ok());
  d.Take();
  d.Prefilled("up");
  d.Made(d.NameOf("up"), "1234", FinishReason::kStop);
  d.Take();
  CHECK(TextOf(d.appended) == "ab1234");
  CHECK(d.appended_expected == 4);  // learned from its upstream request
}

}  // namespace
}  // namespace baton
