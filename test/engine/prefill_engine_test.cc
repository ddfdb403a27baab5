#include "engine/prefill_engine.h"

#include <algorithm>
#include <deque>
#include <random>
#include <set>

#include "catch.h"
#include "engine/prefill_world.h"
#include "engine/scenario_file.h"

namespace baton {
namespace {

// Everything arrives at once and in order, except what is held.
class EngineScenario {
 public:
  std::string Run(const ScenarioCommand& command) {
    printed_.clear();
    const std::string word = command.words.empty() ? "" : command.words[0];
    if (command.name == "worker") {
      Start(command);
    } else if (command.name == "decode") {
      world_->AddDecode(word, command.Number("blocks"));
    } else if (command.name == "kill") {
      world_->KillDecode(word);
    } else if (command.name == "submit") {
      world_->Submit(word, ParseTokens(command.Option("tokens")), command.Option("to"),
                     static_cast<int32_t>(command.Number("priority")));
    } else if (command.name == "open") {
      world_->Open(word, ParseTokens(command.Option("tokens")), static_cast<int32_t>(command.Number("priority")));
    } else if (command.name == "append" || command.name == "close") {
      world_->Append(word, ParseTokens(command.Option("tokens")), command.name == "close", command.Option("to"),
                     command.Number("restart") == 1);
    } else if (command.name == "cancel") {
      world_->Cancel(word);
    } else if (command.name == "hold") {
      held_kinds_.insert(word);
    } else if (command.name == "deliver") {
      held_kinds_.erase(word);
    } else {
      RunStep(command);
    }
    Deliver();
    world_->CheckInvariants();
    return printed_;
  }

 private:
  void RunStep(const ScenarioCommand& command) {
    if (command.name == "begin") {
      if (!world_->Begin()) Print("nothing to compute");
    } else if (command.name == "end") {
      world_->End();
    } else if (command.name == "fail") {
      world_->End(command.Number("after"));
    } else if (command.name == "step") {
      if (world_->Begin()) {
        world_->End();
      } else {
        Print("nothing to compute");
      }
    } else if (command.name == "advance") {
      absl::Duration by;
      REQUIRE(absl::ParseDuration(command.words[0], &by));
      world_->Advance(by);
    } else if (command.name == "start") {
      StartDecode(command.words[0]);
    } else if (command.name == "blocks") {
      Blocks();
    } else {
      FAIL("unknown command " << command.name);
    }
  }
  void Start(const ScenarioCommand& command) {
    waiting_.clear();
    held_kinds_.clear();
    PrefillEngineOptions options{.blocks = command.Number("blocks"),
                                 .step_tokens = command.Number("budget", 64),
                                 .max_requests = command.Number("max_requests", 100),
                                 .sender = {}};
    world_ = std::make_unique<PrefillWorld>(
        std::move(options), [this](PrefillWorld::Envelope e) { waiting_.push_back(std::move(e)); },
        [this](const std::string& line) { Print(line); });
  }
  void Print(const std::string& line) { absl::StrAppend(&printed_, line, "\n"); }

  void Deliver() {
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (held_kinds_.contains(it->kind)) {
        ++it;
        continue;
      }
      const PrefillWorld::Envelope envelope = std::move(*it);
      waiting_.erase(it);
      if (envelope.kind != "heartbeat") Print(envelope.text);
      envelope.arrive();
      it = waiting_.begin();
    }
  }
  void StartDecode(const RequestId& id) {
    const auto token = world_->FirstToken(id);
    const bool right = token.ok() && *token == FakeBackend::NextToken(world_->requests().at(id).prompt);
    Print(token.ok() ? (right ? "the right token" : "a WRONG token") : token.status().ToString());
  }
  void Blocks() {
    const auto print = [this](const std::string& name, const BlockPool::Counts& counts) {
      Print(absl::StrCat(name, ": free ", counts.free, " referenced ", counts.referenced, " cached ", counts.cached,
                         " quarantined ", counts.quarantined));
    };
    print("p", world_->engine().load().blocks);
    for (auto& [address, decode] : world_->decodes()) print(address, decode->worker.pool().counts());
  }

  std::unique_ptr<PrefillWorld> world_;
  std::deque<PrefillWorld::Envelope> waiting_;
  std::set<std::string> held_kinds_;
  std::string printed_;
};

void RunFile(const std::string& name) {
  EngineScenario scenario;
  RunScenario(absl::StrCat(BATON_SOURCE_DIR, "/test/scenario/", name),
              [&](const ScenarioCommand& command) { return scenario.Run(command); });
}

TEST_CASE("KV is computed, pushed as it comes, and committed") { RunFile("prefill_engine_push.txt"); }
TEST_CASE("requests wait for room, are refused, or find their KV there") { RunFile("prefill_engine_admission.txt"); }
TEST_CASE("an open job is computed as it comes and handed off when it is closed") {
  RunFile("prefill_engine_open.txt");
}
TEST_CASE("requests end early at every stage and leave no block") { RunFile("prefill_engine_cancel.txt"); }

PrefillEngineOptions SmallOptions() { return {.blocks = 4, .vocab = 10, .context = 100, .sender = {}}; }

PrefillJob JobOf(const RequestId& id, std::vector<TokenId> tokens) {
  PrefillJob job;
  job.request_id = id;
  job.tokens = std::move(tokens);
  return job;
}

TEST_CASE("bad requests are refused by field, limit and value, and nothing of them stays") {
  PrefillEngineOptions options = SmallOptions();
  options.max_requests = 1;
  PrefillEngine engine(options);
  const auto refusal = [&](PrefillJob job) { return engine.Add(std::move(job), absl::UnixEpoch())->status; };
  CHECK(refusal(JobOf("a", {})) ==
        absl::InvalidArgumentError("tokens: expected 1 to 100 of them (the context), got 0"));
  CHECK(refusal(JobOf("a", std::vector<TokenId>(101, 1))) ==
        absl::InvalidArgumentError("tokens: expected 1 to 100 of them (the context), got 101"));
  CHECK(refusal(JobOf("a", {1, 10})) == absl::InvalidArgumentError("tokens[1]: expected an id in [0, 10), got 10"));
  CHECK(refusal(JobOf("a", {-1})) == absl::InvalidArgumentError("tokens[0]: expected an id in [0, 10), got -1"));
  PrefillJob negative = JobOf("a", {1});
  negative.max_new_tokens = -1;
  CHECK(refusal(negative) == absl::InvalidArgumentError("max_new_tokens: expected >= 0, got -1"));
  CHECK(refusal(JobOf("a", std::vector<TokenId>(100, 1))) ==
        absl::InvalidArgumentError("the prompt can never fit: it needs 6 KV blocks, this prefill worker has 4"));
  REQUIRE_FALSE(engine.Add(JobOf("a", std::vector<TokenId>(20, 1)), absl::UnixEpoch()).has_value());
  CHECK(absl::IsAlreadyExists(refusal(JobOf("a", {1}))));
  CHECK(absl::IsResourceExhausted(refusal(JobOf("b", {1}))));
  engine.Cancel("a", absl::UnixEpoch());
  CHECK(engine.TakeActions(absl::UnixEpoch()).size() == 1);
  CHECK(engine.idle());
  engine.CheckInvariants();
}

TEST_CASE("open jobs have a limit of their own, and keep out nobody that could run") {
  PrefillEngineOptions options = SmallOptions();
  options.max_requests = 2;
  PrefillEngine engine(options);
  const absl::Time now = absl::UnixEpoch();
  const auto add = [&](const RequestId& id, bool open) {
    PrefillJob job = JobOf(id, {1, 2});
    job.open = open;
    job.decode_worker = open ? "" : "d";
    const auto refused = engine.Add(std::move(job), now);
    engine.CheckInvariants();
    return refused ? refused->status : absl::OkStatus();
  };
  CHECK(add("reader 1", true).ok());
  CHECK(add("reader 2", true).ok());
  CHECK(add("reader 3", true) ==
        absl::ResourceExhaustedError("this prefill worker has 2 requests whose prompts grow, which is its limit"));
  CHECK(add("their upstream", false).ok());
  CHECK(add("another", false).ok());
  CHECK(add("one too many", false) ==
        absl::ResourceExhaustedError("this prefill worker has 2 requests, which is its limit"));
  engine.Append({.request_id = "reader 1", .tokens = {3}, .last = true, .decode_worker = "d"}, now);
  engine.CheckInvariants();
  CHECK(add("reader 3", true).ok());
  engine.Cancel("reader 2", now);
  engine.CheckInvariants();
  CHECK(add("reader 4", true).ok());
}

TEST_CASE("an open job that is given what no prompt can have ends, and nothing of it stays") {
  PrefillEngine engine(SmallOptions());
  const absl::Time now = absl::UnixEpoch();
  const auto open = [&](std::vector<TokenId> first, std::vector<TokenId> then, bool last) {
    PrefillJob job = JobOf("a", std::move(first));
    job.open = true;
    REQUIRE_FALSE(engine.Add(std::move(job), now).has_value());
    engine.Append({.request_id = "a", .tokens = std::move(then), .last = last, .decode_worker = {}}, now);
    const auto actions = engine.TakeActions(now);
    REQUIRE(actions.size() == 1);
    engine.CheckInvariants();
    REQUIRE(engine.idle());
    return std::string(std::get<RequestFailed>(actions[0]).status.message());
  };
  CHECK(open({1}, {10}, false) == "tokens[1]: expected an id in [0, 10), got 10");
  CHECK(open(std::vector<TokenId>(60, 1), std::vector<TokenId>(41, 1), false) ==
        "tokens: expected 1 to 100 of them (the context), got 101");
  CHECK(open(std::vector<TokenId>(60, 1), std::vector<TokenId>(40, 1), false) ==
        "the prompt can never fit: it needs 6 KV blocks, this prefill worker has 4");
  CHECK(open({}, {}, true) == "tokens: expected 1 to 100 of them (the context), got 0");
  engine.Append({.request_id = "nobody", .tokens = {1}, .last = true, .decode_worker = "d"}, now);
  CHECK(engine.TakeActions(now).empty());
}

TEST_CASE("times say how long a request queued, computed and was handed off") {
  PrefillEngine engine(SmallOptions());
  absl::Time now = absl::UnixEpoch();
  const auto later = [&](int64_t ms) { return now += absl::Milliseconds(ms); };
  REQUIRE_FALSE(engine.Add(JobOf("a", std::vector<TokenId>(33, 1)), now).has_value());
  REQUIRE(engine.StartStep(later(5)) != nullptr);
  engine.FinishStep(absl::OkStatus(), later(7));
  const auto actions = engine.TakeActions(now);
  REQUIRE(actions.size() == 1);
  const auto& done = std::get<PrefillDone>(actions[0]);
  CHECK(done.queued == absl::Milliseconds(5));
  CHECK(done.compute == absl::Milliseconds(7));
  CHECK(done.handoff == absl::ZeroDuration());
}

TEST_CASE("open jobs fill a step for as long as the options say, by what steps were measured to take") {
  PrefillEngineOptions options = SmallOptions();
  options.blocks = 64;
  options.step_tokens = 256;
  options.context = 1024;
  options.open_step = absl::Milliseconds(80);
  PrefillEngine engine(options);
  absl::Time now = absl::UnixEpoch();
  const auto step = [&] {  // of 1 ms for each token
    const Batch* batch = engine.StartStep(now);
    size_t tokens = 0;
    for (const SequenceSlice& slice : batch->slices) tokens += slice.tokens.size();
    engine.FinishStep(absl::OkStatus(), now += absl::Milliseconds(tokens));
    return tokens;
  };
  REQUIRE_FALSE(engine.Add(JobOf("closed", std::vector<TokenId>(257, 1)), now).has_value());
  CHECK(step() == 256);
  PrefillJob open = JobOf("open", std::vector<TokenId>(257, 2));
  open.open = true;
  REQUIRE_FALSE(engine.Add(open, now).has_value());
  CHECK(step() == 80);
  REQUIRE_FALSE(engine.Add(JobOf("more", std::vector<TokenId>(401, 3)), now).has_value());
  CHECK(step() == 256);
  CHECK(step() == 144 + 80);
}

TEST_CASE("a step of open jobs is broken off where a prompt that is whole would wait long for little") {
  PrefillEngineOptions options = SmallOptions();
  options.blocks = 64;
  options.sender.self.layout.layers = 10;
  absl::Time now = absl::UnixEpoch();
  const auto whole = [](const std::string& id, size_t tokens, TokenId token) {
    return JobOf(id, std::vector<TokenId>(tokens + 1, token));
  };
  PrefillEngine engine(options);
  const auto run = [&](PrefillJob job, int64_t ms) {
    REQUIRE_FALSE(engine.Add(std::move(job), now).has_value());
    REQUIRE(engine.StartStep(now) != nullptr);
    engine.FinishStep(absl::OkStatus(), now += absl::Milliseconds(ms));
  };
  // 100 ms a step and 1 ms for each of its tokens.
  run(whole("a", 16, 1), 116);
  run(whole("b", 48, 2), 148);
  engine.TakeActions(now);
  PrefillJob open = whole("open", 64, 3);
  open.open = true;
  REQUIRE_FALSE(engine.Add(open, now).has_value());
  REQUIRE(engine.StartStep(now) != nullptr);
  const absl::Time began = now;
  const auto layers = [&](int64_t done) { return began + absl::Milliseconds(164) * done / 10; };
  CHECK(engine.LayerDone(4, layers(5)));  // nobody waits
  SECTION("early") {
    REQUIRE_FALSE(engine.Add(whole("late", 16, 4), layers(6)).has_value());
    CHECK_FALSE(engine.LayerDone(5, layers(6)));  // 66 ms for what 64 ms will do
    engine.BreakOffStep(layers(6));
    const Batch* batch = engine.StartStep(layers(6));
    REQUIRE(batch != nullptr);
    CHECK(batch->slices.front().tokens.front() == 4);
    engine.FinishStep(absl::OkStatus(), layers(6) + absl::Milliseconds(116));
    engine.Append({.request_id = "open", .tokens = {}, .last = true, .decode_worker = {}}, layers(20));
    REQUIRE(engine.StartStep(layers(20)) != nullptr);
    engine.FinishStep(absl::OkStatus(), layers(30));
    const auto actions = engine.TakeActions(layers(30));
    REQUIRE(actions.size() == 2);
    CHECK(std::get<PrefillDone>(actions[1]).computed_tokens == 64);
    CHECK(std::get<PrefillDone>(actions[1]).steps.size() == 1);
  }
  SECTION("late") {
    REQUIRE_FALSE(engine.Add(whole("late", 16, 4), layers(8)).has_value());
    CHECK(engine.LayerDone(7, layers(8)));  // 33 ms
    engine.FinishStep(absl::OkStatus(), layers(10));
  }
  engine.CheckInvariants();
}

// Measured from its arrival, which may fall into a step, to the end of the step that completes it.
TEST_CASE("open jobs add no more to the time to a first token than the options say, whenever a job arrives") {
  constexpr absl::Duration kMost = absl::Milliseconds(80);
  const auto time_to = [&](int64_t tokens, absl::Duration into_step, int open_jobs) {
    PrefillEngineOptions options = SmallOptions();
    options.blocks = 4096;
    options.step_tokens = 256;
    options.context = 8192;
    options.open_step = kMost;
    PrefillEngine engine(options);
    absl::Time now = absl::UnixEpoch();
    const auto begin = [&] {  // 20 ms and 1 ms for each token
      int64_t computed = 0;
      for (const SequenceSlice& slice : engine.StartStep(now)->slices) computed += std::ssize(slice.tokens);
      return now + absl::Milliseconds(20 + computed);
    };
    const auto finish = [&](absl::Time end) { engine.FinishStep(absl::OkStatus(), now = end); };
    for (const int64_t known : {33, 161}) {
      REQUIRE_FALSE(engine.Add(JobOf(absl::StrCat(known), std::vector<TokenId>(known, 1)), now).has_value());
      finish(begin());
    }
    for (int i = 0; i < open_jobs; ++i) {
      PrefillJob job = JobOf(absl::StrCat("open", i), std::vector<TokenId>(1000, i % 10));
      job.cache_salt = job.request_id;
      job.open = true;
      REQUIRE_FALSE(engine.Add(std::move(job), now).has_value());
    }
    const absl::Time end = open_jobs > 0 ? begin() : now;
    REQUIRE((open_jobs == 0 || end - now >= kMost / 2));  // it was worth a test
    const absl::Time arrival = open_jobs > 0 ? now + into_step : now;
    now = arrival;
    REQUIRE_FALSE(engine.Add(JobOf("job", std::vector<TokenId>(tokens, 2)), now).has_value());
    if (open_jobs > 0) finish(end);
    engine.TakeActions(now);
    while (engine.TakeActions(now).empty()) finish(begin());
    return now - arrival;
  };
  for (const int64_t tokens : {33, 101, 301, 1201}) {
    const absl::Duration alone = time_to(tokens, absl::ZeroDuration(), 0);
    for (const int64_t ms : {0, 1, 30, 60}) {
      CAPTURE(tokens, ms, absl::FormatDuration(alone));
      const absl::Duration beside = time_to(tokens, absl::Milliseconds(ms), 12);
      CAPTURE(absl::FormatDuration(beside));
      CHECK(beside - alone <= kMost);
    }
  }
}

TEST_CASE("steps say when a request was computed for, itself or by another") {
  PrefillEngineOptions options = SmallOptions();
  options.blocks = 8;
  options.step_tokens = 32;
  PrefillEngine engine(options);
  absl::Time now = absl::UnixEpoch();
  const auto later = [&](int64_t ms) { return now += absl::Milliseconds(ms); };
  PrefillJob open = JobOf("open", std::vector<TokenId>(17, 1));
  open.open = true;
  REQUIRE_FALSE(engine.Add(std::move(open), now).has_value());
  REQUIRE(engine.StartStep(later(5)) != nullptr);
  engine.FinishStep(absl::OkStatus(), later(7));
  // Another one computes the block that comes next.
  REQUIRE_FALSE(engine.Add(JobOf("other", std::vector<TokenId>(33, 1)), now).has_value());
  engine.Append({.request_id = "open", .tokens = std::vector<TokenId>(16, 1), .last = true, .decode_worker = {}}, now);
  REQUIRE(engine.StartStep(later(3)) != nullptr);
  engine.FinishStep(absl::OkStatus(), later(2));
  const auto actions = engine.TakeActions(later(1));
  REQUIRE(actions.size() == 2);
  for (const PrefillAction& action : actions) {
    const auto& done = std::get<PrefillDone>(action);
    const bool was_open = done.request_id == "open";
    INFO(done.request_id);
    REQUIRE(done.steps.size() == (was_open ? 2 : 1));
    if (was_open) {
      CHECK(done.steps[0].began == absl::Milliseconds(12));
      CHECK(done.steps[0].ended == absl::Milliseconds(5));
      CHECK(done.steps[0].tokens == 16);
    }
    CHECK(done.steps.back().began == absl::Milliseconds(2));
    CHECK(done.steps.back().ended == absl::ZeroDuration());
    CHECK(done.steps.back().tokens == done.computed_tokens - (was_open ? 16 : 0));
  }
}

// A cluster under faults: two decode workers that come and go, messages in any order, some lost.
class Chaos {
 public:
  explicit Chaos(unsigned seed)
      : random_(seed),
        world_(
            {.blocks = 12 + Below(40),
             .step_tokens = 16 + Below(64),
             .sender = {.self = {}, .forget_idle = absl::Seconds(15)}},
            [this](PrefillWorld::Envelope e) { waiting_.push_back(std::move(e)); }, [](const std::string&) {}) {
    for (const char* d : {"d0", "d1"}) world_.AddDecode(d, 8 + Below(30));
  }

  void Event() {
    world_.lease = {.tokens = static_cast<int32_t>(std::max<int64_t>(0, Below(200) - 100)),
                    .duration = absl::Seconds(Below(10))};
    world_.lease_holder = LeaseHolder(static_cast<uint64_t>(Below(3)));
    switch (Below(12)) {
      case 11:
        if (Below(20) == 0) world_.engine().EndLeases(LeaseHolder(1));
        break;
      case 0:
        Submit();
        break;
      case 10:
        if (!open_.empty()) AppendToOne(Below(3) == 0);
        break;
      case 1:
        CancelOne();
        break;
      case 2:
      case 3:
        if (!world_.running()) world_.Begin();
        break;
      case 4:
      case 5:
        if (world_.running()) EndStep();
        break;
      case 6:
        world_.Advance(absl::Milliseconds(Below(Below(20) == 0 ? 20000 : 100)));
        break;
      case 7:
        if (Below(50) == 0) Restart();
        break;
      default:
        DeliverOne(Below(20) != 0);
    }
    world_.CheckInvariants();
    CheckTokens();
  }

  void Settle() {
    while (!open_.empty()) AppendToOne(true);
    for (int i = 0; i < 4000 && !world_.engine().idle(); ++i) {
      while (!waiting_.empty()) DeliverOne(true);
      if (world_.running()) {
        world_.End();
      } else if (!world_.Begin()) {
        world_.Advance(absl::Milliseconds(50));
      }
      world_.CheckInvariants();
      CheckTokens();
    }
    REQUIRE(world_.engine().idle());
    const PrefillLoad load = world_.engine().load();
    CHECK(load.blocks.referenced == load.leased_blocks);
    CHECK(load.leased_blocks <= load.blocks.total / 2);
    for (const auto& [id, request] : world_.requests()) {
      INFO(id);
      CHECK(request.done.has_value() != request.failed.has_value());
    }
    world_.Advance(absl::Minutes(5));  // leases end
    CHECK(world_.engine().load().blocks.referenced == 0);
    world_.Advance(absl::Minutes(5));  // and then the quarantines
    for (auto& [address, decode] : world_.decodes()) {
      CHECK(decode->worker.pool().counts().referenced == 0);
      CHECK(decode->worker.pool().counts().quarantined == 0);
    }
  }
  int64_t right_tokens() const { return right_tokens_; }

 private:
  int64_t Below(int64_t limit) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit)); }

  void Submit() {
    std::vector<TokenId> prompt(static_cast<size_t>(1 + Below(120)));
    TokenId branch = 0;
    for (size_t i = 0; i < prompt.size(); ++i) {
      if (i % 24 == 0) branch = static_cast<TokenId>(Below(2));
      prompt[i] = branch;
    }
    const RequestId id = absl::StrCat("r", ++submitted_);
    const auto priority = static_cast<int32_t>(Below(3));
    if (Below(2) == 0) return world_.Submit(id, prompt, AnyDecode(), priority);
    const auto known = prompt.begin() + Below(std::ssize(prompt) + 1);
    open_[id] = {known, prompt.end()};
    world_.Open(id, {prompt.begin(), known}, priority);
  }
  WorkerAddress AnyDecode() {
    const char* to[] = {"d0", "d1", ""};
    return to[Below(3)];
  }
  // The next part of an open job's prompt, or all the rest.
  void AppendToOne(bool last) {
    const auto it = std::next(open_.begin(), Below(std::ssize(open_)));
    const auto& [id, rest] = *it;
    const auto end = last ? rest.end() : rest.begin() + Below(std::ssize(rest) + 1);
    const std::vector<TokenId> tokens(rest.begin(), end);
    const std::vector<TokenId> left(end, rest.end());
    world_.Append(id, tokens, last, last ? AnyDecode() : "", !tokens.empty() && Below(8) == 0);
    if (last) {
      open_.erase(it);
    } else {
      it->second = left;
    }
  }
  void CancelOne() {
    auto& requests = world_.requests();
    if (requests.empty() || Below(3) != 0) return;
    world_.Cancel(std::next(requests.begin(), Below(static_cast<int64_t>(requests.size())))->first);
  }
  void EndStep() {
    if (Below(15) == 0) {
      world_.End(Below(FakeBackend::Layout().layers + 1));
    } else {
      world_.End();
    }
  }
  void Restart() {
    const WorkerAddress address = Below(2) == 0 ? "d0" : "d1";
    world_.KillDecode(address);
    if (Below(3) != 0) world_.AddDecode(address, 8 + Below(30));
  }
  void DeliverOne(bool arrives) {
    if (waiting_.empty()) return;
    const auto it = waiting_.begin() + Below(static_cast<int64_t>(waiting_.size()));
    const PrefillWorld::Envelope envelope = std::move(*it);
    waiting_.erase(it);
    arrives ? envelope.arrive() : envelope.lose();
  }
  // What is done gives the right token, or the decode worker refuses it: never a wrong one.
  void CheckTokens() {
    for (auto& [id, request] : world_.requests()) {
      if (!request.done || request.to.empty() || !started_.insert(id).second) continue;
      const auto token = world_.FirstToken(id);
      if (!token.ok()) continue;
      INFO(id);
      REQUIRE(*token == FakeBackend::NextToken(request.prompt));
      ++right_tokens_;
    }
  }

  std::mt19937 random_;
  std::vector<PrefillWorld::Envelope> waiting_;
  PrefillWorld world_;
  int submitted_ = 0;
  std::map<RequestId, std::vector<TokenId>> open_;  // what is still to be appended
  std::set<RequestId> started_;
  int64_t right_tokens_ = 0;
};

TEST_CASE("whatever is lost, late, cancelled or dies, tokens are right and all blocks come back") {
  const unsigned first_seed = std::random_device{}();
  int64_t right_tokens = 0;
  for (unsigned seed = first_seed; seed < first_seed + 60; ++seed) {
    INFO("seed " << seed);
    Chaos chaos(seed);
    for (int i = 0; i < 400; ++i) chaos.Event();
    chaos.Settle();
    right_tokens += chaos.right_tokens();
  }
  CHECK(right_tokens > 0);
}

// Prompts that are refused come again, as a router sends them, until they are through. Pools are short on both sides,
// so whoever waited while it held blocks would stop the others.
void SendUntilThrough(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned limit) { return static_cast<int>(random() % limit); };
  std::deque<PrefillWorld::Envelope> waiting;
  PrefillWorld world(
      {.blocks = 6 + below(6), .step_tokens = 16 + below(64), .sender = {}},
      [&](PrefillWorld::Envelope e) { waiting.push_back(std::move(e)); }, [](const std::string&) {});
  for (const char* d : {"d0", "d1"}) world.AddDecode(d, 6 + below(4));
  std::map<RequestId, PrefillWorld::Request> left;
  for (int i = 0; i < 30; ++i) {
    // Never a first token that needs a block of its own: the fake decode worker does not reserve for growth.
    std::vector<TokenId> prompt(static_cast<size_t>(2 + below(15) + 16 * below(5)), static_cast<TokenId>(below(3)));
    left[absl::StrCat("r", i)] = {std::move(prompt), below(3) == 0 ? "d1" : "d0", std::nullopt, std::nullopt};
  }
  for (const auto& [id, request] : left) world.Submit(id, request.prompt, request.to);
  for (int round = 0; round < 500 && !left.empty(); ++round) {
    for (; !waiting.empty(); waiting.pop_front()) waiting.front().arrive();
    if (world.running()) world.End();
    world.Begin();
    world.CheckInvariants();
    for (auto it = left.begin(); it != left.end();) {
      const PrefillWorld::Request& request = world.requests().at(it->first);
      if (request.done && below(3) == 0) {  // decoded: its blocks there are free again
        const auto token = world.FirstToken(it->first);
        REQUIRE(token.ok());
        REQUIRE(*token == FakeBackend::NextToken(it->second.prompt));
        it = left.erase(it);
        continue;
      }
      if (request.failed) {
        REQUIRE(absl::IsResourceExhausted(request.failed->status));
        REQUIRE(request.failed->no_room_to_decode);
        world.Submit(it->first, it->second.prompt, it->second.to);
      }
      ++it;
    }
  }
  CHECK(left.empty());
}

TEST_CASE("prompts that come again while decode workers are full all get through") {
  const unsigned first_seed = std::random_device{}();
  for (unsigned seed = first_seed; seed < first_seed + 50; ++seed) {
    INFO("seed " << seed);
    SendUntilThrough(seed);
  }
}

}  // namespace
}  // namespace baton
