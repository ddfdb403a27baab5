#include "simulator/workflow.h"

#include "backend/simulated/shapes.h"
#include "catch.h"

namespace baton {
namespace {

ClusterShape Shape(const char* model = "qwen2.5-7b", double tokens_per_s = 100) {
  ClusterShape shape;
  shape.model = *ModelNamed(model);
  shape.device = *DeviceNamed("a100");
  shape.pace = absl::Seconds(1 / tokens_per_s);
  return shape;
}

Workflow Cascade(const std::string& task, int64_t prefix, int32_t output) {
  Agent a{.name = "A", .parts = {NamedTokens{task, 64}}, .output = output, .paced = true};
  Agent b{.name = "B", .parts = {NamedTokens{"common", prefix}, OutputOf{"A"}, NamedTokens{"then", 16}}, .output = 4};
  if (prefix == 0) b.parts.erase(b.parts.begin());
  return {a, b};
}

std::vector<Workflow> Cascades(int count, int64_t prefix, int32_t output) {
  std::vector<Workflow> workflows;
  for (int i = 0; i < count; ++i) workflows.push_back(Cascade("question " + std::to_string(i), prefix, output));
  return workflows;
}

// An agent for each number of upstream requests: none, one, several, and one with several
// downstream requests.
Workflow Diamond(const std::string& task) {
  Workflow workflow = {{.name = "split", .parts = {NamedTokens{task, 40}}, .output = 37}};
  Agent join{.name = "join", .parts = {NamedTokens{"join", 33}}, .output = 9};
  for (const std::string name : {"x", "y", "z"}) {
    workflow.push_back(
        {.name = name, .parts = {NamedTokens{"part", 100}, OutputOf{"split"}, NamedTokens{name, 5}}, .output = 21});
    join.parts.push_back(OutputOf{name});
  }
  workflow.push_back(join);
  return workflow;
}

RunResult Run(const ClusterShape& shape, const std::vector<Workflow>& workflows, const RunOptions& options) {
  auto result = RunWorkflows(shape, workflows, options);
  INFO(result.status());
  REQUIRE(result.ok());
  CHECK(result->blocks_held == 0);
  return *std::move(result);
}

void CheckSameTokens(const RunResult& a, const RunResult& b) {
  REQUIRE(a.workflows.size() == b.workflows.size());
  for (size_t w = 0; w < a.workflows.size(); ++w) {
    REQUIRE(a.workflows[w].size() == b.workflows[w].size());
    for (const auto& [name, ran] : a.workflows[w]) {
      CAPTURE(w, name);
      CHECK_FALSE(ran.tokens.empty());
      CHECK(ran.tokens == b.workflows[w].at(name).tokens);
    }
  }
}

TEST_CASE("A simulation repeats exactly, and another seed gives other times") {
  const auto workflows = Cascades(3, 500, 40);
  ClusterShape shape = Shape();
  const RunResult first = Run(shape, workflows, {}), second = Run(shape, workflows, {});
  CHECK(first.steps == second.steps);
  CHECK(first.workflows[2].at("B").ended == second.workflows[2].at("B").ended);
  shape.network.seed = 2;
  const RunResult other = Run(shape, workflows, {});
  CHECK(first.steps != other.steps);
  CheckSameTokens(first, other);
}

TEST_CASE("Outputs are equal with and without overlap, and all blocks are free") {
  for (const char* model : {"qwen2.5-7b", "qwen2.5-32b", "llama-3.1-8b"}) {
    for (const int64_t prefix : {0, 1000}) {
      CAPTURE(model, prefix);
      std::vector<Workflow> workflows = Cascades(4, prefix, 50);
      workflows.push_back(Diamond("task"));
      const RunResult sequential = Run(Shape(model), workflows, {.overlap = false});
      CheckSameTokens(sequential, Run(Shape(model), workflows, {.overlap = true}));
      CheckSameTokens(sequential, Run(Shape(model), workflows, {.overlap = true, .share = false}));
    }
  }
}

TEST_CASE("A downstream prompt starts sooner when its prefix is computed early") {
  const auto workflows = Cascades(1, 2000, 64);
  const auto waited = [&](bool overlap) {
    const RunResult result = Run(Shape(), workflows, {.overlap = overlap});
    return result.workflows[0].at("B").first - result.workflows[0].at("A").ended;
  };
  // 2,000 tokens of 13 GFLOP at 187 TFLOP/s take 140 ms. With overlap, the rest takes the time of
  // reading the weights, 7 ms.
  CHECK(waited(false) > absl::Milliseconds(140));
  CHECK(waited(true) < absl::Milliseconds(40));
}

// A step takes 31 ms for 16 or 64 tokens, because it reads the weights. Upstream requests end 65 ms
// apart.
TEST_CASE("A downstream prompt does not wait for another streaming prompt's step") {
  const auto waited = [](bool overlap) {
    absl::Duration sum;
    const RunResult result = Run(Shape("qwen2.5-32b", 200), Cascades(4, 0, 32), {.overlap = overlap});
    for (const auto& agents : result.workflows) sum += agents.at("B").first - agents.at("A").first;
    return sum;
  };
  CHECK(waited(true) <= waited(false));
}

TEST_CASE("Shortest-job-first lets short workflows overtake without other outputs") {
  std::vector<Workflow> workflows;
  for (int i = 0; i < 8; ++i) {
    const std::string name = "long " + std::to_string(i);
    workflows.push_back({{.name = "A", .parts = {NamedTokens{name, 4000}}, .output = 40},
                         {.name = "B", .parts = {OutputOf{"A"}, NamedTokens{name + " more", 4000}}, .output = 40}});
  }
  for (int i = 0; i < 8; ++i) {
    const std::string name = "short " + std::to_string(i);
    workflows.push_back({{.name = "C", .parts = {NamedTokens{name, 100}}, .output = 4}});
  }
  std::vector<absl::Duration> arrivals(8, absl::ZeroDuration());
  arrivals.resize(16, absl::Milliseconds(50));
  ClusterShape shape = Shape();
  for (const bool overlap : {false, true}) {
    CAPTURE(overlap);
    shape.shortest_first.reset();
    const RunResult fcfs = Run(shape, workflows, {.overlap = overlap, .arrivals = arrivals});
    shape.shortest_first.emplace();
    const RunResult sjf = Run(shape, workflows, {.overlap = overlap, .arrivals = arrivals});
    CheckSameTokens(fcfs, sjf);
    const auto last_short = [&](const RunResult& result) {
      absl::Duration last;
      for (size_t w = 8; w < 16; ++w) last = std::max(last, result.workflows[w].at("C").first);
      return last - absl::Milliseconds(50);
    };
    // Eight prompts of 4,000 tokens take 2.3 s. A request that has begun is not interrupted.
    CHECK(last_short(fcfs) > absl::Seconds(2));
    CHECK(last_short(sjf) < absl::Milliseconds(600));
  }
}

TEST_CASE("Shortest-job-first bounds how much later a request may overtake") {
  // Prompts of 1,000 tokens, which arrive twice as fast as they can be computed. The second one is
  // four times as long, and its expected work is 50 s.
  constexpr absl::Duration kBound = absl::Milliseconds(300), kEvery = absl::Milliseconds(30);
  std::vector<Workflow> workflows;
  std::vector<absl::Duration> arrivals;
  for (int i = 0; i < 200; ++i) {
    const bool longest = i == 1;
    workflows.push_back({{.name = "C",
                          .parts = {NamedTokens{"prompt " + std::to_string(i), longest ? 4000 : 1000}},
                          .output = longest ? 2000 : 1}});
    arrivals.push_back(i * kEvery);
  }
  ClusterShape shape = Shape();
  shape.shortest_first = WorkloadOptions{.bound = kBound, .per_prompt_token = absl::Microseconds(50)};
  const RunResult result = Run(shape, workflows, {.overlap = true, .arrivals = arrivals});
  const absl::Duration first = result.workflows[1].at("C").first;
  int overtook = 0;
  for (size_t w = 2; w < workflows.size(); ++w) {
    CAPTURE(w);
    if (result.workflows[w].at("C").first >= first) continue;
    ++overtook;
    CHECK(arrivals[w] - arrivals[1] <= 2 * kBound);
  }
  CHECK(overtook > 3);  // the order is not first come, first served
}

TEST_CASE("An upstream request decodes at its configured pace") {
  const RunResult result = Run(Shape("qwen2.5-7b", 25), Cascades(1, 0, 51), {});
  const AgentRan& a = result.workflows[0].at("A");
  CHECK(absl::ToDoubleSeconds(a.ended - a.first) == Approx(50 / 25.0).epsilon(0.01));
}

TEST_CASE("Workflows that cannot run are refused") {
  CHECK_FALSE(RunWorkflows(Shape(), {{{.name = "B", .parts = {OutputOf{"A"}}, .output = 1}}}, {}).ok());
  CHECK_FALSE(RunWorkflows(Shape(), Cascades(2, 0, 4), {.arrivals = {absl::Seconds(1)}}).ok());
  CHECK_FALSE(RunWorkflows(Shape(), Cascades(2, 0, 4), {.arrivals = {absl::Seconds(1), absl::Seconds(0)}}).ok());
  ClusterShape small = Shape("qwen2.5-32b");
  small.device.memory_bytes = 40e9;
  CHECK_FALSE(RunWorkflows(small, Cascades(1, 0, 4), {}).ok());
}

}  // namespace
}  // namespace baton
