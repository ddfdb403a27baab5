#include "engine/decode/scheduler.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_join.h"
#include "catch.h"
#include "kv/prefix_key.h"
#include "seeds.h"
#include "world/accounts.h"
#include "world/scenario.h"

namespace baton {
namespace {

// A scheduler with a pool without memory. A sequence ends by itself when it has made all its
// tokens.
class DecodeSchedulerWorld {
 public:
  DecodeSchedulerWorld(int64_t blocks, DecodeSchedulerOptions options)
      : pool_(blocks), tree_(pool_), scheduler_(WithPositions(options, blocks), pool_, tree_) {}

  struct Spec {
    int32_t kv_tokens = 0;
    int64_t max_new_tokens = 0;
    int64_t expected_tokens = 1;
    int32_t priority = 0;
    int64_t arrival_offset_s = 0;
    TokenId family = 0;  // prompts of one family are prefixes of each other
    std::string tenant{};
  };

  // Returns false if there are not enough blocks for the prompt.
  bool Add(const std::string& name, const Spec& spec) {
    std::vector<TokenId> tokens(static_cast<size_t>(spec.kv_tokens));
    std::iota(tokens.begin(), tokens.end(), spec.family * 1000);
    ClaimedKv kv{{}, BlockKeys(RootKey(Digest{}, ""), tokens), spec.kv_tokens};
    for (BlockRef& block : tree_.Match(kv.keys)) kv.table.Append(std::move(block));
    while (static_cast<int64_t>(kv.table.size()) < BlocksFor(spec.kv_tokens)) {
      std::optional<BlockRef> block = tree_.Allocate();
      if (!block) return false;
      kv.table.Append(*std::move(block));
    }
    const RequestSpec& request =
        specs_.emplace_back(RequestSpec{.tenant = spec.tenant,
                                        .priority = spec.priority,
                                        .arrival_offset = absl::Seconds(spec.arrival_offset_s),
                                        .sampling = {.max_tokens = static_cast<int32_t>(spec.max_new_tokens)},
                                        .expected_tokens = static_cast<int32_t>(spec.expected_tokens)});
    const SequenceId id = scheduler_.Add(std::move(kv), request, now);
    names_[id] = name;
    left_[id] = spec.max_new_tokens;
    ends_[id] = spec.kv_tokens + spec.max_new_tokens;
    came_[spec.tenant][id] = now;
    Check();
    return true;
  }

  // Runs one step and returns its events, one a line. Returns an empty string if nothing can run.
  std::string Step() {
    now += absl::Milliseconds(10);
    const bool started = next_.has_value();
    const DecodePlan plan = started ? *std::exchange(next_, std::nullopt) : scheduler_.BeginStep();
    scheduler_.CheckInvariants();
    if (started) REQUIRE((plan.out.empty() && plan.in.empty()));
    CheckVictims(plan);
    CheckTables(plan);
    std::string lines;
    for (const SwapCopy& copy : plan.out) {
      absl::StrAppend(&lines, names_[copy.sequence], " goes out, ", copy.pieces.size(), " blocks\n");
      // The scheduler does not read the memory, so one byte is enough.
      if (!copy.pieces.empty()) *copy.host = std::make_unique<std::byte[]>(1);
    }
    for (const SwapCopy& copy : plan.in) {
      absl::StrAppend(&lines, names_[copy.sequence], " comes in, ", copy.pieces.size(), " blocks\n");
    }
    std::vector<std::string> batch;
    for (const SequenceId& id : plan.batch) batch.push_back(names_.contains(id) ? names_[id] : "ended");
    if (!batch.empty()) absl::StrAppend(&lines, started ? "ran ahead " : "runs ", absl::StrJoin(batch, " "), "\n");
    if (begins_next) BeginNext();
    scheduler_.FinishStep();
    for (const SequenceId& id : plan.batch) {
      if (!names_.contains(id)) continue;
      if (--left_[id] == 0 || ends_early.erase(names_[id]) > 0) {
        absl::StrAppend(&lines, names_[id], " ends\n");
        Remove(id);
      }
    }
    Check();
    return lines;
  }

  // Runs one step. The next step is enqueued before it is over.
  void StepWithNext() {
    scheduler_.BeginStep();
    REQUIRE(scheduler_.BeginNext() != nullptr);
    scheduler_.FinishStep();
  }
  void RemoveNamed(const std::string& name) { Remove(IdOf(name)); }
  void SetBlockKey(const std::string& name, const BlockKey& key) { scheduler_.SetBlockKey(IdOf(name), key); }
  void Check() {
    tree_.CheckInvariants();
    scheduler_.CheckInvariants();
  }

  BlockPool& pool() { return pool_; }
  RadixTree& tree() { return tree_; }
  DecodeScheduler& scheduler() { return scheduler_; }
  int64_t running() const { return std::ssize(names_); }
  absl::Time now = absl::UnixEpoch();
  bool begins_next = false;       // call BeginNext while each step runs
  std::mt19937* drops = nullptr;  // if set, sometimes drops the step that BeginNext planned
  // Sequences that end in the next step before they have made all their tokens.
  std::set<std::string> ends_early{};

 private:
  void BeginNext() {
    const DecodePlan* next = scheduler_.BeginNext();
    scheduler_.CheckInvariants();
    if (next == nullptr) return;
    if (drops != nullptr && (*drops)() % 4 == 0) {
      scheduler_.DropNext();
    } else {
      next_ = *next;
    }
  }
  static DecodeSchedulerOptions WithPositions(DecodeSchedulerOptions options, int64_t blocks) {
    if (options.positions == 0) options.positions = blocks * kBlockTokens;
    return options;
  }
  SequenceId IdOf(const std::string& name) const {
    return std::ranges::find(names_, name, [](const auto& entry) { return entry.second; })->first;
  }
  void Remove(SequenceId id) {
    scheduler_.Remove(id);
    names_.erase(id);
    left_.erase(id);
    ends_.erase(id);
    for (auto& [tenant, came] : came_) came.erase(id);
  }
  // Requires that each sequence of the batch has the blocks that its tokens and its next token
  // need. The contents of the blocks are a matter of the engine's tests.
  void CheckTables(const DecodePlan& plan) {
    REQUIRE(plan.tables.size() == plan.batch.size());
    for (size_t i = 0; i < plan.batch.size(); ++i) {
      for (const BlockId id : plan.tables[i]) REQUIRE(pool_.ReferencesOf(id) > 0);
      // A sequence that has ended keeps its blocks until the step is over.
      if (!names_.contains(plan.batch[i])) continue;
      const int64_t kv_tokens = ends_.at(plan.batch[i]) - left_.at(plan.batch[i]);
      REQUIRE(std::ssize(plan.tables[i]) >= BlocksFor(kv_tokens + 1));
    }
  }
  // Requires that a sequence is swapped out only for one that comes earlier and is not in this
  // step.
  void CheckVictims(const DecodePlan& plan) {
    if (plan.out.empty()) return;
    std::map<std::tuple<size_t, absl::Time, uint64_t>, SequenceId> by_round;
    for (const auto& [tenant, came] : came_) {
      std::vector<absl::Time> times;
      for (const auto& [id, time] : came) times.push_back(time);
      std::ranges::sort(times);
      size_t round = 0;
      for (const auto& [id, time] : came) {
        by_round[{round, times[round], id.number}] = id;
        ++round;
      }
    }
    const auto goes_out = [&](const SequenceId& id) {
      return std::ranges::count(plan.out, id, &SwapCopy::sequence) > 0;
    };
    bool room_is_made = false;
    for (const auto& [position, id] : by_round) {
      if (goes_out(id)) REQUIRE(room_is_made);
      room_is_made |= !goes_out(id) && std::ranges::count(plan.batch, id) == 0;
    }
  }

  BlockPool pool_;
  RadixTree tree_;
  DecodeScheduler scheduler_;
  std::deque<RequestSpec> specs_;  // of all sequences since the start
  std::map<SequenceId, std::string> names_;
  std::map<SequenceId, int64_t> left_;
  std::map<SequenceId, int64_t> ends_;  // KV tokens at its end
  std::optional<DecodePlan> next_;
  std::map<std::string, std::map<SequenceId, absl::Time>> came_;  // by tenant
};

std::string Show(const Admission& admission) {
  if (std::holds_alternative<Admit>(admission)) return "admitted\n";
  if (std::holds_alternative<Wait>(admission)) return "wait\n";
  return absl::StrCat("never fits: ", std::get<NeverFits>(admission).reason, "\n");
}

TEST_CASE("DecodeScheduler plans each step as its scenarios expect") {
  const std::vector<std::string> files = ScenarioFiles({"decode_"});
  CHECK(files.size() == 20);
  for (const std::string& file : files) {
    std::unique_ptr<DecodeSchedulerWorld> world;
    RunScenario(file, [&](const ScenarioCommand& c) -> std::string {
      if (c.name == "worker") {
        DecodeSchedulerOptions options;
        options.max_batch = static_cast<int32_t>(c.Number("batch", 64));
        options.positions = c.Number("positions");
        world = std::make_unique<DecodeSchedulerWorld>(c.Number("blocks"), options);
        return "";
      }
      if (c.name == "add") {
        const bool added = world->Add(c.words.at(0), {.kv_tokens = static_cast<int32_t>(c.Number("kv")),
                                                      .max_new_tokens = c.Number("new", 1000),
                                                      .expected_tokens = c.Number("expected", 1),
                                                      .priority = static_cast<int32_t>(c.Number("priority")),
                                                      .arrival_offset_s = c.Number("offset"),
                                                      .family = static_cast<TokenId>(c.Number("family")),
                                                      .tenant = c.Option("tenant")});
        return added ? "" : "no room\n";
      }
      if (c.name == "step") {
        // Equal consecutive steps are printed once.
        std::string lines, last;
        for (int64_t i = c.words.empty() ? 1 : std::stoll(c.words[0]); i > 0; --i) {
          std::string step = world->Step();
          if (step.empty()) step = "nothing can run\n";
          if (step != last) lines += step;
          last = step;
        }
        return lines;
      }
      if (c.name == "wait") {
        world->now += absl::Seconds(std::stoll(c.words.at(0)));
        return "";
      }
      if (c.name == "remove") {
        world->RemoveNamed(c.words.at(0));
        return "";
      }
      if (c.name == "reserve") {
        const auto kv = static_cast<int32_t>(c.Number("kv"));
        const HandoffReceiver::Outstanding outstanding{
            .reserved = c.Number("reserved"), .committed = 0, .growth_blocks = c.Number("growth")};
        return Show(world->scheduler().Consider(
            {.kv_tokens = kv, .expected_new_tokens = static_cast<int32_t>(c.Number("expected"))}, BlocksFor(kv),
            outstanding));
      }
      return absl::StrCat("unknown command ", c.name, "\n");
    });
  }
}

TEST_CASE("DecodeScheduler leaves sequences that surely end out of the next step") {
  DecodeSchedulerWorld world(12, {.max_batch = 3});
  world.begins_next = true;
  REQUIRE(world.Add("a", {.kv_tokens = 14, .max_new_tokens = 100, .family = 1}));
  REQUIRE(world.Add("b", {.kv_tokens = 10, .max_new_tokens = 3, .family = 2}));
  CHECK(world.Step() == "runs a b\n");
  REQUIRE(world.Add("c", {.kv_tokens = 14, .max_new_tokens = 100, .family = 3}));
  CHECK(world.Step() == "ran ahead a b\n");
  CHECK(world.Step() == "ran ahead a b c\nb ends\n");
  CHECK(world.Step() == "ran ahead a c\n");
  REQUIRE(world.Add("d", {.kv_tokens = 3, .max_new_tokens = 100, .family = 4}));
  REQUIRE(world.Add("e", {.kv_tokens = 3, .max_new_tokens = 100, .family = 5}));
  CHECK(world.Step() == "ran ahead a c\n");
  CHECK(world.Step() == "ran ahead a c d\n");
  world.ends_early = {"c"};
  CHECK(world.Step() == "ran ahead a c d\nc ends\n");
  CHECK(world.Step() == "ran ahead a ended d\n");
  CHECK(world.Step() == "ran ahead a d e\n");
  world.ends_early = {"a", "d", "e"};
  CHECK(world.Step() == "ran ahead a d e\na ends\nd ends\ne ends\n");
  CHECK(world.Step() == "ran ahead ended ended ended\n");
  CHECK(world.Step() == "");
  CHECK(world.pool().counts().free == 12);
}

TEST_CASE("DecodeScheduler takes no block for a step after a sequence's last") {
  DecodeSchedulerWorld world(4, {});
  REQUIRE(world.Add("a", {.kv_tokens = 31, .max_new_tokens = 1, .family = 1}));
  world.scheduler().BeginStep();
  const int64_t free = world.pool().counts().free;
  CHECK(world.scheduler().BeginNext() == nullptr);
  CHECK(world.pool().counts().free == free);
  world.scheduler().FinishStep();
}

TEST_CASE("DecodeScheduler plans no step ahead without blocks or with a swapped sequence") {
  DecodeSchedulerWorld world(4, {});
  world.begins_next = true;
  REQUIRE(world.Add("a", {.kv_tokens = 30, .max_new_tokens = 20, .family = 1}));
  REQUIRE(world.Add("b", {.kv_tokens = 30, .max_new_tokens = 20, .family = 2}));
  CHECK(world.Step() == "runs a b\n");
  CHECK(world.Step() == "ran ahead a b\n");
  CHECK(world.Step() == "b goes out, 2 blocks\n");
  CHECK(world.Step() == "runs a\n");  // no next step can be planned early while b is out
  CHECK(world.Step() == "runs a\n");
  world.ends_early = {"a"};
  CHECK(world.Step() == "runs a\na ends\n");
  CHECK(world.Step() == "b comes in, 1 blocks\nruns b\n");
  CHECK(world.Step() == "ran ahead b\n");
}

TEST_CASE("DecodeScheduler frees blocks of an ended sequence after the next step") {
  DecodeSchedulerWorld world(6, {});
  REQUIRE(world.Add("a", {.kv_tokens = 30, .max_new_tokens = 20, .family = 1}));
  REQUIRE(world.Add("b", {.kv_tokens = 15, .max_new_tokens = 20, .family = 2}));
  world.StepWithNext();
  const int64_t free = world.pool().counts().free;
  world.RemoveNamed("b");
  CHECK(world.pool().counts().free == free);
  world.Check();
  world.scheduler().FinishStep();
  CHECK(world.pool().counts().free == free + 2);
  world.Check();
}

TEST_CASE("DecodeScheduler frees a replaced block after the next step") {
  DecodeSchedulerWorld world(6, {});
  REQUIRE(world.Add("c", {.kv_tokens = 15, .max_new_tokens = 100, .family = 3}));
  REQUIRE(world.Add("d", {.kv_tokens = 15, .max_new_tokens = 100, .family = 4}));
  world.StepWithNext();
  const BlockKey key = RootKey(Digest{}, "what both have computed");
  const int64_t free = world.pool().counts().free;
  world.SetBlockKey("c", key);
  world.SetBlockKey("d", key);
  CHECK(world.pool().counts().free == free);
  world.scheduler().FinishStep();
  CHECK(world.pool().counts().free == free + 1);
  world.Check();
}

TEST_CASE("DecodeScheduler swaps out all sequences that share the needed blocks") {
  // B and C have the same 3 full blocks and no others. A arrived first and needs these blocks.
  DecodeSchedulerWorld world(8, {});
  // A has 5 blocks, and 8 at its end.
  REQUIRE(world.Add("A", {.kv_tokens = 79, .max_new_tokens = 40, .priority = 0, .family = 1}));
  REQUIRE(world.Add("B", {.kv_tokens = 48, .max_new_tokens = 40, .priority = 0, .family = 2}));
  REQUIRE(world.Add("C", {.kv_tokens = 48, .max_new_tokens = 40, .priority = 0, .family = 2}));
  int steps = 0;
  while (world.running() > 0 && steps < 500) {
    world.Step();
    ++steps;
  }
  CHECK(world.running() == 0);
  CHECK(world.scheduler().counts().preemptions >= 2);
}

TEST_CASE("DecodeScheduler ends every sequence, and swaps only for earlier ones") {
  ForEachSeed(200, [](uint64_t seed) {
    std::mt19937 rng(seed);
    const auto blocks = static_cast<int64_t>(4 + rng() % 12);
    DecodeSchedulerOptions options;
    options.max_batch = static_cast<int32_t>(1 + rng() % 6);
    const auto tenants = static_cast<uint32_t>(1 + rng() % 4);
    DecodeSchedulerWorld world(blocks, options);
    world.begins_next = seed % 2 == 0;
    if (seed % 4 == 0) world.drops = &rng;
    int added = 0;
    int64_t to_make = 0;
    for (int i = 0; i < 30; ++i) {
      const int64_t most = blocks * kBlockTokens;
      const auto kv = static_cast<int32_t>(rng() % static_cast<uint64_t>(most));
      const auto made = static_cast<int64_t>(1 + rng() % static_cast<uint64_t>(most - kv));
      if (world.Add(absl::StrCat("s", i), {.kv_tokens = kv,
                                           .max_new_tokens = made,
                                           .priority = static_cast<int32_t>(rng() % 3),
                                           .family = static_cast<TokenId>(rng() % 3),
                                           .tenant = std::string(rng() % tenants, 't')})) {
        ++added;
        to_make += made;
      }
      for (uint32_t s = rng() % 20; s > 0; --s) {
        if (rng() % 16 == 0) world.ends_early.insert(absl::StrCat("s", rng() % 30));
        world.Step();
        world.ends_early.clear();
      }
    }
    // Each step makes a token or swaps a sequence. A livelock would exceed any bound on steps.
    int64_t steps = 0;
    while (world.running() > 0 && steps <= 4 * to_make + 100) {
      ++steps;
      REQUIRE(!world.Step().empty());
    }
    CHECK(world.running() == 0);
    CHECK(world.Step().find_first_not_of("ran ahead ended\n") == std::string::npos);
    CHECK(AllBlocksBack(world.pool().counts()));
    CHECK(world.scheduler().counts().preemptions < 4 * added + 100);
  });
}

TEST_CASE("DecodeScheduler runs a low priority in the end") {
  DecodeSchedulerWorld world(32, {.max_batch = 2, .positions = 0});
  REQUIRE(world.Add("low", {.kv_tokens = 5, .max_new_tokens = 3}));
  int waited = 0;
  std::string lines;
  for (int i = 0; lines.find("low ends") == std::string::npos; ++i) {
    REQUIRE(i < 1000);
    if (world.running() < 4) {
      REQUIRE(world.Add(absl::StrCat("high", i), {.kv_tokens = 5, .max_new_tokens = 10, .priority = 2}));
    }
    lines = world.Step();
    world.now += absl::Seconds(1);
    waited += lines.find("low") == std::string::npos;
  }
  CHECK(waited > 5);
  CHECK(waited < 40);  // 2 levels count as 20 seconds, and running sequences finish first
}

}  // namespace
}  // namespace baton
