#include "engine/prefill/scheduler.h"

#include <map>
#include <memory>
#include <random>
#include <set>

#include "catch.h"
#include "seeds.h"
#include "world/scenario.h"
#include "world/scheduler_world.h"

namespace baton {
namespace {

class SchedulerScenario {
 public:
  std::string Run(const ScenarioCommand& command) {
    // Commands after `print off` only make a state.
    if (command.name == "print") {
      printing_ = command.words.at(0) == "on";
      return "";
    }
    const std::string printed = command.name == "serve" ? Serve(command) : Execute(command);
    return printing_ ? printed : "";
  }

 private:
  // Runs `serve ID tokens=LIST after=MS`: adds a prompt, computes it in three steps with transfers
  // of the disk between them, and removes it.
  std::string Serve(const ScenarioCommand& command) {
    const std::string& id = command.words.at(0);
    const std::string disk = absl::StrCat("disk after=", command.Option("after"));
    std::string printed;
    for (const std::string& line :
         {absl::StrCat("add ", id, " tokens=", command.Option("tokens")), std::string("step"), disk,
          std::string("step"), std::string("step"), disk, absl::StrCat("remove ", id)}) {
      absl::StrAppend(&printed, Execute(ScenarioCommand(line)));
    }
    return printed;
  }
  std::string Execute(const ScenarioCommand& command) {
    if (command.name == "worker") {
      world_ = std::make_unique<SchedulerWorld>(
          command.Number("blocks"), command.Number("budget"),
          StagingOptions{.host = command.Number("host"), .disk = command.Number("disk")});
      return "";
    }
    const RequestId id = command.words.empty() ? "" : command.words[0];
    if (command.name == "add") {
      const auto status = world_->Add(id, ParseTokens(command.Option("tokens")),
                                      static_cast<int32_t>(command.Number("priority")), command.Number("open") == 1,
                                      absl::FromUnixSeconds(command.Number("order")), command.Option("tenant"));
      return status.ok() ? "" : absl::StrCat(status.ToString(), "\n");
    }
    if (command.name == "extend" || command.name == "close") {
      const auto status = world_->Extend(id, ParseTokens(command.Option("tokens")), command.name == "close");
      return status.ok() ? Completed() : absl::StrCat(status.ToString(), "\n");
    }
    if (command.name == "step") return Step();
    if (command.name == "begin") return Plan();
    if (command.name == "end") return Finish(true);
    if (command.name == "fail") return Finish(false);
    if (command.name == "order") {
      world_->scheduler().SetQueueOrder(id, absl::FromUnixSeconds(std::stoll(command.words.at(1))));
      return "";
    }
    if (command.name == "limit") return Limit(id, command.Number("tokens"));
    if (command.name == "stop") return (world_->scheduler().Stop(id), "");
    if (command.name == "remove") return Remove(id);
    if (command.name == "blocks") return Blocks();
    if (command.name == "load") return Load();
    if (command.name == "staged") return Staged();
    if (command.name == "disk") return Disk(id, command.Number("after"), command.Number("most", 1000));
    if (command.name == "protect") {
      world_->Protect(id, absl::Seconds(command.Number("s")));
      return "";
    }
    if (command.name == "wait") {
      world_->Wait(absl::Seconds(command.Number("s")));
      return "";
    }
    if (command.name == "compute_time") {
      world_->scheduler().staging().SetComputeTime(absl::Milliseconds(command.Number("ms")));
      return "";
    }
    if (command.name == "copy_time") {
      world_->copy_time = absl::Milliseconds(command.Number("ms"));
      return "";
    }
    if (command.name == "limit_open") {
      world_->scheduler().streaming().Limit(
          {command.Number("increment"), command.Number("step"), std::max<int64_t>(1, command.Number("alone"))});
      return "";
    }
    FAIL("unknown command " << command.name);
    return "";
  }
  std::string Step() {
    const std::string planned = Plan();
    return world_->scheduler().step_running() ? planned + Finish(true) : planned;
  }
  std::string Plan() {
    std::string printed;
    std::map<RequestId, PrefillCounters> before;
    for (const auto& [id, tokens] : world_->requests()) before[id] = world_->scheduler().prompt(id).counters;
    if (!world_->Plan()) printed = "nothing to compute\n";
    for (const auto& [id, old] : before) {
      const PrefillCounters& now = world_->scheduler().prompt(id).counters;
      std::string line;
      if (now.cached > old.cached) absl::StrAppend(&line, " cached ", now.cached - old.cached);
      if (now.from_host > old.from_host) absl::StrAppend(&line, " from host ", now.from_host - old.from_host);
      if (now.from_disk > old.from_disk) absl::StrAppend(&line, " from disk ", now.from_disk - old.from_disk);
      if (now.shared > old.shared) absl::StrAppend(&line, " shares ", now.shared - old.shared);
      if (now.computed > old.computed) absl::StrAppend(&line, " computes ", now.computed - old.computed);
      if (!line.empty()) absl::StrAppend(&printed, id, line, "\n");
    }
    return printed + Completed();
  }
  std::string Finish(bool ok) {
    std::string printed;
    for (const RequestId& id : world_->Finish(ok)) absl::StrAppend(&printed, id, " failed\n");
    return printed + Completed();
  }
  std::string Completed() {
    std::string printed;
    for (const auto& [id, tokens] : world_->requests()) {
      if (!world_->scheduler().IsComplete(id) || !completed_.insert(id).second) continue;
      absl::StrAppend(&printed, id, " complete\n");
    }
    return printed;
  }
  std::string Limit(const RequestId& id, int64_t tokens) {
    world_->Limit(id, tokens);
    return Completed();
  }
  std::string Remove(const RequestId& id) {
    world_->Remove(id);
    completed_.erase(id);
    return "";
  }
  std::string Blocks() {
    const auto& counts = world_->pool().counts();
    return absl::StrCat("free ", counts.free, " referenced ", counts.referenced, " cached ", counts.cached, "\n");
  }
  std::string Load() {
    const auto load = world_->scheduler().load();
    return absl::StrCat("waiting ", load.waiting, " running ", load.running, " queued tokens ", load.queued_tokens,
                        "\n");
  }

  std::string Staged() {
    const KvStaging& staging = world_->scheduler().staging();
    const KvStaging::Counts counts = staging.counts();
    std::string printed = absl::StrCat("host ", counts.host, " disk ", counts.disk);
    if (counts.failures > 0) absl::StrAppend(&printed, " failures ", counts.failures);
    if (counts.not_read > 0) absl::StrAppend(&printed, " not read ", counts.not_read);
    if (staging.disk_is_slow()) absl::StrAppend(&printed, " slow");
    if (!staging.disk_status().ok()) absl::StrAppend(&printed, " no disk: ", staging.disk_status().ToString());
    return printed + "\n";
  }
  // Ends all transfers of the disk, each after `ms`. The first `most` of them fail as `how` states,
  // except that a full disk can be read.
  std::string Disk(const std::string& how, int64_t ms, int64_t most) {
    const absl::Status status = how == "full"     ? absl::ResourceExhaustedError("no space left")
                                : how == "wrong"  ? absl::DataLossError("other bytes")
                                : how == "broken" ? absl::InternalError("broken")
                                                  : absl::OkStatus();
    int64_t reads = 0, writes = 0;
    while (!world_->transfers().empty()) {
      const bool read = world_->transfers().front().read;
      ++(read ? reads : writes);
      const bool fails = most-- > 0 && !(read && how == "full");
      world_->EndTransfer(0, fails ? status : absl::OkStatus(), absl::Milliseconds(ms));
      world_->scheduler().CheckInvariants();
    }
    return absl::StrCat("read ", reads, " wrote ", writes, "\n");
  }

  std::unique_ptr<SchedulerWorld> world_;
  std::set<RequestId> completed_;
  bool printing_ = true;
};

void RunFiles(std::string_view prefix, int files) { CHECK(RunScenarios<SchedulerScenario>({prefix}) == files); }

TEST_CASE("Prompts are computed in chunks, by priority and in order") { RunFiles("prefill_chunks_", 6); }
TEST_CASE("Tenants receive steps in a fair order") { RunFiles("prefill_tenants_", 7); }
TEST_CASE("Requests share blocks that are cached or that a step computes") { RunFiles("prefill_sharing_", 4); }
TEST_CASE("Requests wait, evict or are refused when blocks run short") { RunFiles("prefill_blocks_", 3); }
TEST_CASE("Blocks of prompts that run soonest are evicted last") { RunFiles("prefill_expected_", 9); }
TEST_CASE("The KV of a paused session is evicted last until its protection ends") {
  RunFiles("prefill_protections_", 5);
}
TEST_CASE("Streaming prompts are computed as they arrive when the worker would idle") {
  RunFiles("prefill_streaming_", 8);
  RunFiles("prefill_low_priority_", 7);
}
TEST_CASE("Evicted blocks are staged in host memory and come back") { RunFiles("prefill_staging_", 8); }
TEST_CASE("Blocks that leave host memory come back from disk") { RunFiles("prefill_disk_", 5); }
TEST_CASE("A disk that is full, wrong or slow loses only the blocks that it held") {
  RunFiles("prefill_broken_disk_", 5);
}
TEST_CASE("A disk that was slow for a moment is read again soon") { RunFiles("prefill_slow_disk_", 3); }
TEST_CASE("Blocks stay consistent when steps fail and requests end at any moment") { RunFiles("prefill_ends_", 6); }

TEST_CASE("The oldest request runs when requests of higher priority keep arriving") {
  SchedulerWorld world(64, 16);
  REQUIRE(world.Add("old", std::vector<TokenId>(48, 1)).ok());
  int steps = 0;
  while (!world.scheduler().IsComplete("old")) {
    REQUIRE(++steps <= 3 * 8);
    const RequestId id = absl::StrCat("new", steps);
    REQUIRE(world.Add(id, std::vector<TokenId>(16, 1 + steps), 9).ok());
    REQUIRE(world.Plan());
    world.Finish();
    for (const auto& [name, tokens] : std::map(world.requests())) {
      if (name != "old" && world.scheduler().IsComplete(name)) world.Remove(name);
    }
  }
}

TEST_CASE("A low-priority job that gives its blocks back in a step reports no progress of them") {
  SchedulerWorld world(2, 32);
  REQUIRE(world.Add("before", std::vector<TokenId>(32, 1)).ok());
  REQUIRE(world.Plan());
  world.Finish();
  world.Remove("before");
  // The job finds all its blocks in the cache. The step would compute nothing else, so it takes up
  // the streaming prompt, which is shorter than an increment and needs one of these blocks.
  REQUIRE(world.Add("low", std::vector<TokenId>(32, 1), kLowPriority).ok());
  REQUIRE(world.Add("streaming", std::vector<TokenId>(16, 2), 0, /*streaming=*/true).ok());
  REQUIRE(world.Plan());
  CHECK(world.scheduler().prompt("low").table.size() == 0);
  CHECK(world.done("low") == 0);
  world.Finish();
}

TEST_CASE("A large request gets its blocks when urgent small requests keep arriving") {
  SchedulerWorld world(8, 32);
  REQUIRE(world.Add("large", std::vector<TokenId>(8 * 16, 1)).ok());
  int steps = 0;
  while (!world.scheduler().IsComplete("large")) {
    REQUIRE(++steps <= 40);
    for (const char* half : {"a", "b"}) {
      const auto token = static_cast<TokenId>(1 + 2 * steps + (*half - 'a'));
      REQUIRE(world.Add(absl::StrCat(half, steps), std::vector<TokenId>(32, token), 9).ok());
    }
    if (world.Plan()) world.Finish();
    for (const auto& [name, tokens] : std::map(world.requests())) {
      if (name != "large" && world.scheduler().IsComplete(name)) world.Remove(name);
    }
  }
}

// Returns how many steps run until the prompt "mine" is complete. It arrives when `their_tenant`
// has `theirs` prompts of the same length.
int StepsOfOneBeside(int theirs, int64_t tokens, int32_t their_priority, const std::string& their_tenant) {
  SchedulerWorld world(2048, 512);
  const auto prompt = [&](TokenId token) { return std::vector<TokenId>(static_cast<size_t>(tokens), token); };
  for (TokenId i = 0; i < theirs; ++i) {
    REQUIRE(world.Add(absl::StrCat(i), prompt(2 + i), their_priority, false, {}, their_tenant).ok());
  }
  REQUIRE(world.Plan());
  REQUIRE(world.Add("mine", prompt(1), 0, false, {}, "mine").ok());
  int steps = 0;
  do {
    world.Finish();
    ++steps;
  } while (!world.scheduler().IsComplete("mine") && world.Plan());
  return steps;
}

TEST_CASE("A tenant's prompt gets its share whatever another tenant submits") {
  const int32_t priority = GENERATE(0, 1000);
  CHECK(StepsOfOneBeside(40, 500, priority, "theirs") == 2);  // the running step, and its own
  CHECK(StepsOfOneBeside(10, 2048, priority, "theirs") == 8);
  CHECK(StepsOfOneBeside(40, 500, priority, "mine") == 41);
}

TEST_CASE("A large request gets its blocks when other tenants' small ones keep arriving") {
  const bool cached = GENERATE(false, true);
  SchedulerWorld world(8, 32);
  // If cached, the prompts of the other tenants cost almost nothing.
  for (int i = 0; i < 3; ++i) {
    if (!cached) break;
    REQUIRE(world.Add(absl::StrCat("before", i), std::vector<TokenId>(32, 1 + i), 0, false, {}, "b").ok());
    REQUIRE(world.Plan());
    world.Finish();
    world.Remove(absl::StrCat("before", i));
  }
  REQUIRE(world.Add("mine too", std::vector<TokenId>(64, 90), 0, false, {}, "a").ok());
  REQUIRE(world.Plan());
  world.Finish();
  REQUIRE(world.Add("large", std::vector<TokenId>(8 * 16, 99), 0, false, {}, "a").ok());
  int steps = 0;
  while (!world.scheduler().IsComplete("large")) {
    REQUIRE(++steps <= 60);
    for (const char* tenant : {"b", "c"}) {
      const TokenId token = cached ? 1 + steps % 2 : 100 + 2 * steps + (*tenant - 'b');
      REQUIRE(world.Add(absl::StrCat(tenant, steps), std::vector<TokenId>(32, token), 9, false, {}, tenant).ok());
    }
    if (world.Plan()) world.Finish();
    for (const auto& [name, tokens] : std::map(world.requests())) {
      if (name != "large" && world.scheduler().IsComplete(name)) world.Remove(name);
    }
  }
}

// Returns a prompt of random length from a small tree of prefixes.
std::vector<TokenId> BranchingPrompt(std::mt19937& random) {
  std::vector<TokenId> tokens(random() % 90);
  TokenId branch = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i % 20 == 0) branch = static_cast<TokenId>(random() % 2);
    tokens[i] = branch;
  }
  return tokens;
}

std::vector<TokenId> WholeBlocks(std::vector<TokenId> tokens) {
  tokens.resize(tokens.size() - tokens.size() % kBlockTokens);
  return tokens;
}

int32_t RandomPriority(std::mt19937& random) {
  return random() % 5 == 0 ? kLowPriority : static_cast<int32_t>(random() % 3);
}

std::string RandomTenant(std::mt19937& random) { return std::array{"", "a", "b", "c"}.at(random() % 4); }

// Returns options that turn staging off half of the time, and otherwise make it so small that it is
// full at once.
StagingOptions RandomStaging(std::mt19937& random) {
  StagingOptions staging;
  if (random() % 2 == 0) staging.host = 1 + static_cast<int64_t>(random() % 20);
  if (staging.host > 0 && random() % 2 == 0) staging.disk = 1 + static_cast<int64_t>(random() % 30);
  return staging;
}

// Ends one of the transfers, sometimes with a failure.
void EndSomeTransfer(SchedulerWorld& world, std::mt19937& random) {
  if (world.transfers().empty()) return;
  const absl::Status status = random() % 20 == 0    ? absl::DataLossError("other bytes")
                              : random() % 200 == 0 ? absl::InternalError("broken")
                              : random() % 30 == 0  ? absl::ResourceExhaustedError("no space left")
                                                    : absl::OkStatus();
  world.EndTransfer(random() % world.transfers().size(), status, absl::Milliseconds(random() % 20));
  if (random() % 10 == 0) world.scheduler().staging().SetComputeTime(absl::Milliseconds(random() % 20));
  if (random() % 10 == 0) world.copy_time = absl::Milliseconds(random() % 40);
}

TEST_CASE("Random requests all end, with each token computed once and all blocks free") {
  ForEachSeed(40, [](uint64_t seed) {
    std::mt19937 random(seed);
    const int64_t blocks = 6 + static_cast<int64_t>(random() % 30);
    SchedulerWorld world(blocks, 16 + static_cast<int64_t>(random() % 80), RandomStaging(random));
    int64_t computed = 0;  // counters of requests that ended between steps
    // Half of the runs are calm: nothing fails or is removed, and no prompt streams or is a
    // low-priority job. Such a prompt would count tokens twice after it gave its blocks back.
    const bool calm = random() % 2 == 0;
    bool all_counted = calm;
    const auto finish = [&] {
      const bool ok = calm || random() % 10 != 0;
      for (const RequestId& id : world.Finish(ok)) world.Remove(id);
    };
    const auto end = [&](const RequestId& id) {
      if (world.scheduler().step_running()) {
        // The request was limited, and the running step, which computes more for it, may fail.
        all_counted = false;
      } else {
        computed += world.scheduler().prompt(id).counters.computed;
      }
      world.Remove(id);
    };
    for (int event = 0; event < 300; ++event) {
      const auto& requests = world.requests();
      const RequestId any = requests.empty() ? "" : std::next(requests.begin(), random() % requests.size())->first;
      if (random() % 10 == 0) {
        world.scheduler().streaming().Limit({static_cast<int64_t>(random() % 80),
                                             16 + static_cast<int64_t>(random() % 80),
                                             1 + static_cast<int64_t>(random() % 40)});
      }
      const absl::Time queue_order = absl::FromUnixSeconds(static_cast<int64_t>(random() % 5));
      if (random() % 20 == 0) world.Wait(absl::Seconds(random() % 40));
      switch (random() % 8) {
        case 0:
        case 1:
          if (calm || random() % 2 == 0) {
            world
                .Add(absl::StrCat(event), BranchingPrompt(random),
                     std::max(RandomPriority(random), calm ? 0 : kLowPriority), false, queue_order,
                     RandomTenant(random))
                .IgnoreError();
          } else {
            world
                .Add(absl::StrCat(event), WholeBlocks(BranchingPrompt(random)), RandomPriority(random), true,
                     queue_order, RandomTenant(random))
                .IgnoreError();
          }
          break;
        case 2:
          if (world.scheduler().step_running()) finish();
          break;
        case 3:
          if (!world.scheduler().step_running()) world.Plan();
          break;
        case 4:
          if (!any.empty() && world.scheduler().IsComplete(any)) end(any);
          break;
        case 6: {
          if (any.empty() || !world.IsOpen(any)) break;
          const bool last = random() % 3 == 0;
          const std::vector<TokenId> more = BranchingPrompt(random);
          world.Extend(any, last ? more : WholeBlocks(more), last).IgnoreError();
          break;
        }
        case 7:
          if (!any.empty()) world.scheduler().SetQueueOrder(any, queue_order);
          break;
        case 5:
          if (any.empty() || world.IsOpen(any) || random() % 3 != 0) break;
          if (random() % 2 == 0) {
            world.Limit(any, static_cast<int64_t>(random() % 4) * kBlockTokens);
          } else if (!calm) {
            world.Remove(any);
          }
          break;
      }
      if (random() % 2 == 0) EndSomeTransfer(world, random);
      world.scheduler().CheckInvariants();
    }
    // Run the remaining requests to their ends.
    for (const auto& [id, tokens] : std::map(world.requests())) {
      if (world.IsOpen(id)) REQUIRE(world.Extend(id, {}, true).ok());
    }
    int steps = 0;
    while (!world.requests().empty() || world.scheduler().step_running()) {
      REQUIRE(++steps < 2000);
      if (world.scheduler().step_running() || world.Plan()) finish();
      EndSomeTransfer(world, random);
      for (const auto& [id, tokens] : std::map(world.requests())) {
        if (world.scheduler().IsComplete(id)) end(id);
      }
    }
    world.scheduler().CheckInvariants();
    CHECK(world.pool().counts().referenced == 0);
    CHECK(world.scheduler().load().running == 0);
    CHECK(world.scheduler().staging().counts().held == 0);
    if (all_counted) CHECK(computed == world.backend().tokens_computed());
    CHECK(computed <= world.backend().tokens_computed());
  });
}

TEST_CASE("No block is computed twice when the pool has room for all requests") {
  ForEachSeed(20, [](uint64_t seed) {
    std::mt19937 random(seed);
    SchedulerWorld world(600, 16 + static_cast<int64_t>(random() % 80));
    std::set<std::vector<TokenId>> full_blocks;  // distinct prefixes of whole blocks
    int64_t tails = 0;
    for (int event = 0; event < 60; ++event) {
      std::vector<TokenId> prompt = BranchingPrompt(random);
      const size_t full = prompt.size() / kBlockTokens * kBlockTokens;
      for (size_t end = kBlockTokens; end <= full; end += kBlockTokens) {
        full_blocks.emplace(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(end));
      }
      tails += static_cast<int64_t>(prompt.size() - full);
      const absl::Time queue_order = absl::FromUnixSeconds(static_cast<int64_t>(random() % 5));
      REQUIRE(world.Add(absl::StrCat(event), prompt, RandomPriority(random), false, queue_order, RandomTenant(random))
                  .ok());
      if (random() % 2 == 0 && world.Plan()) world.Finish();
    }
    while (world.Plan()) world.Finish();
    CHECK(world.backend().tokens_computed() == static_cast<int64_t>(full_blocks.size()) * kBlockTokens + tails);
  });
}

}  // namespace
}  // namespace baton
