#include "router/workload.h"

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "router/request.h"
#include "seeds.h"

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
  int64_t prompt_tokens = 0, max_tokens = 0, expected_tokens = 0;
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
    record.asked.expected_tokens = static_cast<int32_t>(arrival.expected_tokens);
    const Request* upstream = nullptr;
    for (const RequestId& id : arrival.upstreams) {
      if (upstream == nullptr && At(id).work.workflow != nullptr) upstream = &At(id);
    }
    load_.Arrived(record, {arrival.prompt_tokens, arrival.max_tokens}, upstream, now);
  }
  void Prefilled(const RequestId& id) { load_.Prefilled(At(id)); }
  void Made(const RequestId& id, int64_t tokens) { load_.Made(At(id), tokens); }
  void Ended(const RequestId& id, bool complete, absl::Time now) { load_.Ended(At(id), complete, now); }
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
  void Finish(const RequestId& id, int64_t tokens, bool complete = true) {
    load.Made(id, tokens);
    load.Ended(id, complete, now);
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
  world.Arrive({.id = "r", .prompt_tokens = 2000, .max_tokens = 50, .expected_tokens = 10});
  CHECK(world.Offset("r") == 12);
  world.load.Prefilled("r");
  CHECK(world.Offset("r") == 10);
  world.load.Made("r", 4);
  CHECK(world.Offset("r") == 6);
  world.load.Made("r", 40);  // more than was expected
  CHECK(world.Offset("r") == 0);
  world.Arrive({.id = "cut", .max_tokens = 5, .expected_tokens = 10});
  CHECK(world.Offset("cut") == 5);
  world.Arrive({.id = "unknown", .max_tokens = 50});
  CHECK(world.Offset("unknown") == 50);
  world.Arrive({.id = "huge", .prompt_tokens = int64_t{1} << 31, .max_tokens = (int64_t{1} << 31) - 1});
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
    world.Arrive({.id = id, .workflow = "a", .max_tokens = 10});
  }
  CHECK(world.Offset("a1") == 30);
  CHECK(world.Offset("a3") == 30);
  world.Arrive({.id = "other tenant", .cache_domain = "t", .workflow = "a", .max_tokens = 10});
  CHECK(world.Offset("other tenant") == 10);
  world.Finish("a1", 10);
  world.Finish("a2", 10);
  world.Arrive({.id = "b", .workflow = "b", .max_tokens = 11});
  CHECK(world.Offset("a3") == 10);
  CHECK(world.Offset("b") == 11);
}

TEST_CASE("Workload counts a workflow's arrival as at most the bound before the request") {
  World world;
  world.Arrive({.id = "a1", .workflow = "a", .max_tokens = 10});
  world.Finish("a1", 10);
  world.Wait(40);  // shorter than `keep`
  world.Arrive({.id = "a2", .workflow = "a", .max_tokens = 10});
  CHECK(world.Offset("a2") == -30);
  world.Wait(40);
  world.Arrive({.id = "a3", .workflow = "a", .max_tokens = 0});
  world.Finish("a2", 10);
  world.Wait(40);
  world.Arrive({.id = "a4", .workflow = "a", .max_tokens = 10});
  CHECK(world.Offset("a4") == -90);  // 120 s after its workflow, of which 100 count
  world.Finish("a3", 0);
  world.Finish("a4", 10);
  world.Wait(60);
  CHECK(world.load.workflows() == 0);
  world.Arrive({.id = "a5", .workflow = "a", .max_tokens = 10});
  CHECK(world.Offset("a5") == 10);  // another workflow with that name
}

TEST_CASE("Workload adds a request without workflow to that of its upstream") {
  World world;
  world.Arrive({.id = "up", .max_tokens = 10});
  world.Arrive({.id = "down", .upstreams = {"gone", "up"}, .max_tokens = 5});
  CHECK(world.Offset("up") == 15);
  CHECK(world.Offset("down") == 15);
  world.Finish("up", 10);
  CHECK(world.Offset("down") == 5);
  world.Finish("down", 5);
  // The workflow has no name, so no later request can belong to it.
  CHECK(world.load.workflows() == 0);
}

TEST_CASE("Workload learns output lengths by cache domain, model and agent") {
  World world;
  const auto arrive = [&](const std::string& id, const std::string& cache_domain, const std::string& model) {
    world.Arrive({.id = id, .cache_domain = cache_domain, .model = model, .agent = "judge", .max_tokens = 50});
  };
  arrive("1", "t", "m");
  CHECK(world.Offset("1") == 50);
  world.Finish("1", 8);
  arrive("2", "t", "m");
  CHECK(world.Offset("2") == 8);
  world.Finish("2", 16);
  arrive("3", "t", "m");
  CHECK(world.Offset("3") == 9);  // a mean of about the last eight
  world.Finish("3", 40, /*complete=*/false);
  arrive("4", "t", "m");
  CHECK(world.Offset("4") == 9);
  arrive("5", "other", "m");
  CHECK(world.Offset("5") == 50);
  arrive("6", "t", "other");
  CHECK(world.Offset("6") == 50);
}

TEST_CASE("Workload learns the work that follows an agent from earlier workflows") {
  World world;
  const auto run = [&](const std::string& workflow) {
    double first = 0;
    for (const char* agent : {"plan", "write", "check"}) {
      const RequestId id = absl::StrCat(workflow, agent);
      world.Arrive({.id = id, .workflow = workflow, .agent = agent, .max_tokens = 50, .expected_tokens = 10});
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
  load.Arrived({.id = "live", .workflow = "live", .max_tokens = 1}, absl::UnixEpoch());
  for (int i = 0; i < 10; ++i) {
    const absl::Time now = absl::UnixEpoch() + absl::Seconds(i);
    load.Arrived({.id = "r", .workflow = absl::StrCat(i), .max_tokens = 1}, now);
    load.Ended("r", true, now);
    load.CheckInvariants();
  }
  CHECK(load.workflows() == 4);
}

TEST_CASE("Workload weighs one level of priority more than length and age") {
  World world;
  world.Arrive({.id = "old", .workflow = "w", .max_tokens = 0});
  world.Wait(1000);
  world.Arrive({.id = "short", .workflow = "w", .max_tokens = 0});
  world.Arrive({.id = "long", .priority = 1, .max_tokens = 1000});
  CHECK(world.Offset("short") == -100);
  CHECK(world.Offset("long") == -100);
  world.Arrive({.id = "highest", .priority = 1000, .max_tokens = 1});
  world.Arrive({.id = "lowest", .priority = -1000, .max_tokens = 1});
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
                  .max_tokens = is_short ? 1 + Draw(3) : 200,
                  .expected_tokens = Draw(3)},
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
      world.load.Ended(next, world.Draw(5) != 0, world.now);
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
    load.Arrived({.id = absl::StrCat(i), .workflow = absl::StrCat(i), .max_tokens = 1000, .expected_tokens = left},
                 now);
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
    load.Ended(absl::StrCat(i), true, now);
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

}  // namespace
}  // namespace baton
