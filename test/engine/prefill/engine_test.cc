#include "engine/prefill/engine.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "catch.h"
#include "world/prefill_world.h"
#include "world/scenario.h"

namespace baton {
namespace {

// Messages arrive at once and in order, except those that a scenario holds back.
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
      world_->Open(word, ParseTokens(command.Option("tokens")), static_cast<int32_t>(command.Number("priority")),
                   command.Option("to"));
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
    mail_ = {};
    held_kinds_.clear();
    PrefillEngineOptions options{.blocks = command.Number("blocks"),
                                 .step_tokens = command.Number("budget", 64),
                                 .least_ahead = command.Number("least_ahead", 8),
                                 .max_requests = command.Number("max_requests", 100),
                                 .sender = {}};
    world_ = std::make_unique<PrefillWorld>(
        std::move(options), [this](Envelope e) { mail_.Post(std::move(e)); },
        [this](const std::string& line) { Print(line); });
  }
  void Print(const std::string& line) { absl::StrAppend(&printed_, line, "\n"); }

  void Deliver() {
    mail_.DeliverAll([this](const Envelope& envelope) {
      const bool held = held_kinds_.contains(envelope.kind);
      if (!held && envelope.kind != "heartbeat") Print(envelope.text);
      return !held;
    });
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
  Mail mail_;
  std::set<std::string> held_kinds_;
  std::string printed_;
};

void RunEngineFiles(std::string_view prefix, int files) { CHECK(RunScenarios<EngineScenario>({prefix}) == files); }

TEST_CASE("PrefillEngine pushes KV as steps complete it, and then commits it") {
  RunEngineFiles("prefill_engine_push_", 6);
}
TEST_CASE("PrefillEngine lets requests wait for room, refuses them or uses cached KV") {
  RunEngineFiles("prefill_engine_admission_", 9);
}
TEST_CASE("PrefillEngine computes a streaming prompt as it arrives and hands it off closed") {
  RunEngineFiles("prefill_engine_streaming_", 8);
}
TEST_CASE("PrefillEngine hands a streaming prompt off early to its probable worker") {
  RunEngineFiles("prefill_engine_ahead_", 11);
}
TEST_CASE("Requests that end early at any stage leave no block") { RunEngineFiles("prefill_engine_cancel_", 8); }

PrefillEngineOptions SmallOptions() { return {.blocks = 4, .vocab = 10, .context = 100, .sender = {}}; }

// Returns options whose estimate of a step's fixed cost is zero.
PrefillEngineOptions WithoutFixedCost(int64_t blocks, absl::Duration streaming_step) {
  PrefillEngineOptions options = SmallOptions();
  options.blocks = blocks;
  options.step_tokens = 256;
  options.context = 1024;
  options.fixed_tokens = 0;
  options.streaming_step = streaming_step;
  return options;
}

PrefillJob JobOf(const RequestId& id, std::vector<TokenId> tokens) {
  PrefillJob job;
  job.request_id = id;
  job.spec.tokens = std::move(tokens);
  return job;
}

std::vector<PrefillDone> DoneOf(const std::vector<PrefillAction>& actions) {
  std::vector<PrefillDone> done;
  for (const PrefillAction& action : actions) {
    if (const auto* result = std::get_if<PrefillDone>(&action)) done.push_back(*result);
  }
  return done;
}

TEST_CASE("PrefillEngine refuses a bad request by field, limit and value, leaving nothing") {
  PrefillEngineOptions options = SmallOptions();
  options.max_requests = 1;
  PrefillEngine engine(options);
  const auto refusal = [&](PrefillJob job) { return engine.Add(std::move(job), absl::UnixEpoch())->status; };
  CHECK(refusal(JobOf("a", {})) ==
        absl::InvalidArgumentError("tokens: expected 1 to 100 tokens (the context length), got 0"));
  CHECK(refusal(JobOf("a", std::vector<TokenId>(101, 1))) ==
        absl::InvalidArgumentError("tokens: expected 1 to 100 tokens (the context length), got 101"));
  CHECK(refusal(JobOf("a", {1, 10})) == absl::InvalidArgumentError("tokens[1]: expected an id in [0, 10), got 10"));
  CHECK(refusal(JobOf("a", {-1})) == absl::InvalidArgumentError("tokens[0]: expected an id in [0, 10), got -1"));
  PrefillJob negative = JobOf("a", {1});
  negative.spec.sampling.max_tokens = -1;
  CHECK(refusal(negative) == absl::InvalidArgumentError("max_tokens: expected >= 0, got -1"));
  CHECK(refusal(JobOf("a", std::vector<TokenId>(100, 1))) ==
        absl::InvalidArgumentError("the prompt can never fit: its KV of 96 tokens needs 6 blocks, this prefill worker "
                                   "has 4 (64 tokens); shorten the prompt, or raise --kv-memory-mb of the prefill "
                                   "workers"));
  REQUIRE_FALSE(engine.Add(JobOf("a", std::vector<TokenId>(20, 1)), absl::UnixEpoch()).has_value());
  CHECK(absl::IsAlreadyExists(refusal(JobOf("a", {1}))));
  CHECK(absl::IsResourceExhausted(refusal(JobOf("b", {1}))));
  engine.Cancel("a", absl::UnixEpoch());
  CHECK(engine.TakeActions(absl::UnixEpoch()).size() == 1);
  CHECK(engine.idle());
  engine.CheckInvariants();
}

TEST_CASE("PrefillEngine runs tenants' jobs in a fair order, also jobs that streamed") {
  PrefillEngineOptions options = SmallOptions();
  options.step_tokens = 16;
  PrefillEngine engine(options);
  const absl::Time now = absl::UnixEpoch();
  const bool grew = GENERATE(false, true);
  for (const std::string id : {"a1", "a2", "b1"}) {
    PrefillJob job = JobOf(id, std::vector<TokenId>(17, 1));
    job.spec.tenant = id.substr(0, 1);
    job.spec.cache_domain = id;
    job.streaming = grew && job.spec.tenant == "b";
    REQUIRE_FALSE(engine.Add(job, now).has_value());
    if (job.streaming) engine.Append({.request_id = id, .tokens = {}, .last = true, .decode_worker = ""}, now);
  }
  std::vector<RequestId> done;
  while (engine.StartStep(now) != nullptr) {
    engine.FinishStep(absl::OkStatus(), now);
    for (const PrefillDone& result : DoneOf(engine.TakeActions(now))) done.push_back(result.request_id);
  }
  CHECK(done == std::vector<RequestId>{"a1", "b1", "a2"});
}

TEST_CASE("PrefillEngine orders whole and streaming jobs by arrival and arrival offset") {
  enum class Way { kWhole, kStreaming, kAppend };
  const Way way = GENERATE(Way::kWhole, Way::kStreaming, Way::kAppend);
  PrefillEngineOptions options = SmallOptions();
  options.step_tokens = 16;
  PrefillEngine engine(options);
  const absl::Time now = absl::UnixEpoch();
  for (const std::string id : {"first", "second"}) {
    const absl::Duration offset = absl::Seconds(id == "first" ? 0 : -1);
    PrefillJob job = JobOf(id, std::vector<TokenId>(17, 1));
    job.spec.cache_domain = id;
    job.streaming = way != Way::kWhole;
    if (way != Way::kAppend) job.spec.arrival_offset = offset;
    REQUIRE_FALSE(engine.Add(job, now).has_value());
    PrefillAppend last{.request_id = id, .last = true};
    if (way == Way::kAppend) last.arrival_offset = offset;
    if (job.streaming) engine.Append(last, now);
  }
  std::vector<RequestId> done;
  while (engine.StartStep(now) != nullptr) {
    engine.FinishStep(absl::OkStatus(), now);
    for (const PrefillDone& result : DoneOf(engine.TakeActions(now))) done.push_back(result.request_id);
  }
  CHECK(done == std::vector<RequestId>{"second", "first"});
}

TEST_CASE("Low-priority jobs do not use up the limits of other jobs") {
  PrefillEngineOptions options = SmallOptions();
  options.max_requests = 2;
  PrefillEngine engine(options);
  const absl::Time now = absl::UnixEpoch();
  PrefillJob shadow = JobOf("shadow", std::vector<TokenId>(20, 1));
  shadow.streaming = true;
  shadow.spec.priority = kLowPriority;
  REQUIRE_FALSE(engine.Add(shadow, now).has_value());
  engine.Append({.request_id = "shadow", .tokens = std::vector<TokenId>{3}, .last = true, .decode_worker = ""}, now);
  engine.CheckInvariants();
  CHECK_FALSE(engine.Add(JobOf("client", {1, 2}), now).has_value());
  shadow.request_id = "another";
  CHECK(absl::IsResourceExhausted(engine.Add(shadow, now)->status));
  shadow.streaming = false;  // submitted when it is complete
  CHECK(absl::IsResourceExhausted(engine.Add(shadow, now)->status));
  PrefillJob streaming = JobOf("growing", {1, 2});
  streaming.streaming = true;
  // Half of the limit is left to streaming prompts of clients.
  CHECK_FALSE(engine.Add(streaming, now).has_value());
  for (const char* id : {"shadow", "client", "growing"}) engine.Cancel(id, now);
  engine.CheckInvariants();
  CHECK_FALSE(engine.Add(shadow, now).has_value());
  CHECK_FALSE(engine.Add(JobOf("client", {1, 2}), now).has_value());
  engine.CheckInvariants();
}

TEST_CASE("PrefillEngine::FailYielding fails streaming prompts and low-priority jobs only") {
  PrefillEngine engine(SmallOptions());
  const absl::Time now = absl::UnixEpoch();
  PrefillJob job = JobOf("growing", {1, 2});
  job.streaming = true;
  REQUIRE_FALSE(engine.Add(job, now).has_value());
  job.request_id = "grown";
  REQUIRE_FALSE(engine.Add(job, now).has_value());
  engine.Append({.request_id = "grown", .tokens = std::vector<TokenId>{3}, .last = true, .decode_worker = "d"}, now);
  job = JobOf("client", {1, 2});
  job.decode_worker = "d";
  REQUIRE_FALSE(engine.Add(job, now).has_value());
  job = JobOf("shadow", std::vector<TokenId>(20, 1));
  job.spec.priority = kLowPriority;
  REQUIRE_FALSE(engine.Add(job, now).has_value());
  engine.TakeActions(now);
  engine.FailYielding(absl::UnavailableError("leaves"), now);
  engine.CheckInvariants();
  std::vector<RequestId> failed;
  for (const PrefillAction& action : engine.TakeActions(now)) {
    const auto* one = std::get_if<RequestFailed>(&action);
    if (one == nullptr) continue;
    CHECK(one->status == absl::UnavailableError("leaves"));
    failed.push_back(one->request_id);
  }
  std::ranges::sort(failed);
  CHECK(failed == std::vector<RequestId>{"growing", "shadow"});
  CHECK(engine.load().requests == 2);
}

TEST_CASE("Streaming prompts have a limit of their own") {
  PrefillEngineOptions options = SmallOptions();
  options.max_requests = 2;
  PrefillEngine engine(options);
  const absl::Time now = absl::UnixEpoch();
  const auto add = [&](const RequestId& id, bool streaming) {
    PrefillJob job = JobOf(id, {1, 2});
    job.streaming = streaming;
    job.decode_worker = streaming ? "" : "d";
    const auto refused = engine.Add(std::move(job), now);
    engine.CheckInvariants();
    return refused ? refused->status : absl::OkStatus();
  };
  CHECK(add("reader 1", true).ok());
  CHECK(add("reader 2", true).ok());
  CHECK(add("reader 3", true) ==
        absl::ResourceExhaustedError(
            "this prefill worker has 2 requests with streaming prompts or low priority, limit 2"));
  CHECK(add("their upstream", false).ok());
  CHECK(add("another", false).ok());
  CHECK(add("one too many", false) == absl::ResourceExhaustedError("this prefill worker has 2 requests, limit 2"));
  engine.Append({.request_id = "reader 1", .tokens = std::vector<TokenId>{3}, .last = true, .decode_worker = "d"}, now);
  engine.CheckInvariants();
  CHECK(add("reader 3", true).ok());
  engine.Cancel("reader 2", now);
  engine.CheckInvariants();
  CHECK(add("reader 4", true).ok());
}

TEST_CASE("A streaming prompt fails when it gets invalid tokens, and leaves nothing") {
  PrefillEngine engine(SmallOptions());
  const absl::Time now = absl::UnixEpoch();
  const auto open = [&](std::vector<TokenId> first, std::vector<TokenId> then, bool last) {
    PrefillJob job = JobOf("a", std::move(first));
    job.streaming = true;
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
        "tokens: expected 1 to 100 tokens (the context length), got 101");
  CHECK(open(std::vector<TokenId>(60, 1), std::vector<TokenId>(40, 1), false) ==
        "the prompt can never fit: its KV of 96 tokens needs 6 blocks, this prefill worker has 4 (64 tokens); shorten "
        "the prompt, or raise --kv-memory-mb of the prefill workers");
  CHECK(open({}, {}, true) == "tokens: expected 1 to 100 tokens (the context length), got 0");
  engine.Append({.request_id = "nobody", .tokens = std::vector<TokenId>{1}, .last = true, .decode_worker = "d"}, now);
  CHECK(engine.TakeActions(now).empty());
}

TEST_CASE("PrefillEngine reserves for the expected length of the job or the last append") {
  PrefillEngine engine(SmallOptions());
  const absl::Time now = absl::UnixEpoch();
  PrefillJob closed = JobOf("closed", std::vector<TokenId>(17, 1));
  closed.spec.expected_tokens = 7;
  closed.decode_worker = "d";
  REQUIRE_FALSE(engine.Add(closed, now).has_value());
  PrefillJob streaming = JobOf("open", std::vector<TokenId>(17, 2));
  streaming.streaming = true;
  REQUIRE_FALSE(engine.Add(streaming, now).has_value());
  engine.Append({.request_id = "open", .last = true, .expected_new_tokens = 9, .decode_worker = "d"}, now);
  std::map<RequestId, int32_t> expected_new_tokens;
  for (auto actions = engine.TakeActions(now); !actions.empty(); actions = engine.TakeActions(now)) {
    for (const PrefillAction& action : actions) {
      if (const auto* link = std::get_if<SendLink>(&action)) {
        LinkReply reply{};
        reply.slab_blocks = 64;
        reply.lease = absl::Seconds(10);
        engine.sender().OnLinkReply(link->link, reply, now);
      } else if (const auto* connect = std::get_if<OpenConnection>(&action)) {
        engine.sender().OnConnected(connect->link, absl::OkStatus(), now);
      } else if (const auto* reserve = std::get_if<SendReserve>(&action)) {
        expected_new_tokens[reserve->request.request_id] = reserve->request.expected_new_tokens;
      }
    }
  }
  CHECK(expected_new_tokens == std::map<RequestId, int32_t>{{"closed", 7}, {"open", 9}});
}

TEST_CASE("PrefillDone reports how long a request queued, computed and was handed off") {
  PrefillEngine engine(SmallOptions());
  absl::Time now = absl::UnixEpoch();
  const auto later = [&](int64_t ms) { return now += absl::Milliseconds(ms); };
  REQUIRE_FALSE(engine.Add(JobOf("a", std::vector<TokenId>(33, 1)), now).has_value());
  REQUIRE(engine.StartStep(later(5)) != nullptr);
  engine.FinishStep(absl::OkStatus(), later(7));
  const PrefillDone done = DoneOf(engine.TakeActions(now)).at(0);
  CHECK(done.queued == absl::Milliseconds(5));
  CHECK(done.compute == absl::Milliseconds(7));
  CHECK(done.handoff == absl::ZeroDuration());
}

TEST_CASE("PrefillEngine reports that a request left the queue when its first step begins") {
  PrefillEngineOptions options = SmallOptions();
  options.blocks = 16;
  options.step_tokens = 32;
  PrefillEngine engine(options);
  const absl::Time now = absl::UnixEpoch();
  const auto started = [&] {
    std::vector<RequestId> ids;
    for (const PrefillAction& action : engine.TakeActions(now)) {
      if (const auto* start = std::get_if<PrefillStarted>(&action)) ids.push_back(start->request_id);
    }
    return ids;
  };
  PrefillJob streaming = JobOf("open", std::vector<TokenId>(33, 1));
  streaming.streaming = true;
  REQUIRE_FALSE(engine.Add(std::move(streaming), now).has_value());
  REQUIRE(engine.StartStep(now) != nullptr);
  CHECK(started().empty());  // the prompt is not complete
  engine.Append({.request_id = "open", .last = true, .decode_worker = {}}, now);
  CHECK(started() == std::vector<RequestId>{"open"});  // the running step computes it
  engine.FinishStep(absl::OkStatus(), now);
  REQUIRE_FALSE(engine.Add(JobOf("first", std::vector<TokenId>(65, 2)), now).has_value());
  REQUIRE_FALSE(engine.Add(JobOf("waits", std::vector<TokenId>(65, 3)), now).has_value());
  CHECK(started().empty());
  REQUIRE(engine.StartStep(now) != nullptr);
  CHECK(started() == std::vector<RequestId>{"first"});
  engine.Cancel("waits", now);
  engine.FinishStep(absl::OkStatus(), now);
  REQUIRE(engine.StartStep(now) != nullptr);
  engine.FinishStep(absl::OkStatus(), now);
  CHECK(started().empty());
}

TEST_CASE("PrefillDone counts the last step as compute when the commit comes during it") {
  PrefillWorld world(
      {.blocks = 16, .sender = {}}, [](Envelope e) { e.arrive(); }, [](const auto&) {});
  world.AddDecode("d", 16);
  world.Submit("a", std::vector<TokenId>(33, 1), "d");
  world.Advance(absl::Milliseconds(5));
  REQUIRE(world.Begin());
  world.Advance(absl::Milliseconds(7));
  world.End();
  const std::optional<PrefillDone>& done = world.requests().at("a").done;
  REQUIRE(done.has_value());
  CHECK(done->queued == absl::Milliseconds(5));
  CHECK(done->compute == absl::Milliseconds(7));
}

TEST_CASE("Streaming prompts fill at most streaming_step of a step, by measured costs") {
  PrefillEngine engine(WithoutFixedCost(/*blocks=*/64, absl::Milliseconds(80)));
  absl::Time now = absl::UnixEpoch();
  const auto step = [&] {  // takes 1 ms for each token
    const Batch* batch = engine.StartStep(now);
    size_t tokens = 0;
    for (const SequenceSlice& slice : batch->slices) tokens += slice.tokens.size();
    engine.FinishStep(absl::OkStatus(), now += absl::Milliseconds(tokens));
    return tokens;
  };
  REQUIRE_FALSE(engine.Add(JobOf("closed", std::vector<TokenId>(257, 1)), now).has_value());
  CHECK(step() == 256);
  PrefillJob streaming = JobOf("open", std::vector<TokenId>(257, 2));
  streaming.streaming = true;
  REQUIRE_FALSE(engine.Add(streaming, now).has_value());
  CHECK(step() == 80);
  REQUIRE_FALSE(engine.Add(JobOf("more", std::vector<TokenId>(401, 3)), now).has_value());
  CHECK(step() == 256);
  CHECK(step() == 144 + 80);
}

TEST_CASE("PrefillDone states the time of staged copies apart from compute") {
  PrefillEngineOptions options = WithoutFixedCost(/*blocks=*/16, absl::Milliseconds(80));
  options.staging.host = 64;
  PrefillEngine engine(options);
  absl::Time now = absl::UnixEpoch();
  size_t copies = 0;
  const auto step = [&] {  // takes 1 ms for each token, after half a second for copies
    const Batch* batch = engine.StartStep(now);
    REQUIRE(batch != nullptr);
    size_t tokens = 0;
    for (const SequenceSlice& slice : batch->slices) tokens += slice.tokens.size();
    copies = engine.copies().out.size() + engine.copies().in.size();
    if (copies > 0) {
      now += absl::Milliseconds(500);
      engine.CopiesDone(absl::Milliseconds(500));
    }
    engine.FinishStep(absl::OkStatus(), now += absl::Milliseconds(tokens));
    return tokens;
  };
  const auto done = [&] { return DoneOf(engine.TakeActions(now)).at(0); };
  for (const TokenId token : {1, 2, 3}) {
    REQUIRE_FALSE(engine.Add(JobOf(absl::StrCat(token), std::vector<TokenId>(257, token)), now).has_value());
    CHECK(step() == 256);
    CHECK(copies == (token > 1 ? 16 : 0));
    const PrefillDone result = done();
    CHECK(result.compute == absl::Milliseconds(256));
    CHECK(result.copied == absl::Milliseconds(token > 1 ? 500 : 0));
  }
  // The limit on tokens of streaming prompts ignores the time of copies.
  PrefillJob streaming = JobOf("open", std::vector<TokenId>(257, 4));
  streaming.streaming = true;
  REQUIRE_FALSE(engine.Add(streaming, now).has_value());
  CHECK(step() == 80);
  CHECK(copies == 5);
}

// The time to the first token begins with the job's arrival, perhaps during a step. It ends with
// the step that completes the job.
TEST_CASE("Streaming prompts delay a first token by at most two shares of a step") {
  constexpr absl::Duration kMost = absl::Milliseconds(80);
  const auto time_to = [&](int64_t tokens, absl::Duration into_step, int open_jobs) {
    PrefillEngineOptions options = SmallOptions();
    options.blocks = 4096;
    options.step_tokens = 256;
    options.context = 8192;
    options.streaming_step = kMost;
    PrefillEngine engine(options);
    absl::Time now = absl::UnixEpoch();
    const auto begin = [&] {  // a step takes 20 ms, and 1 ms for each token
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
      job.spec.cache_domain = job.request_id;
      job.streaming = true;
      REQUIRE_FALSE(engine.Add(std::move(job), now).has_value());
    }
    const absl::Time end = open_jobs > 0 ? begin() : now;
    REQUIRE((open_jobs == 0 || end - now >= kMost / 2));  // so that the step can delay the job
    const absl::Time arrival = open_jobs > 0 ? now + into_step : now;
    now = arrival;
    REQUIRE_FALSE(engine.Add(JobOf("job", std::vector<TokenId>(tokens, 2)), now).has_value());
    if (open_jobs > 0) finish(end);
    engine.TakeActions(now);
    while (DoneOf(engine.TakeActions(now)).empty()) finish(begin());
    return now - arrival;
  };
  for (const int64_t tokens : {33, 101, 301, 1201}) {
    const absl::Duration alone = time_to(tokens, absl::ZeroDuration(), 0);
    for (const int64_t ms : {0, 1, 30, 60}) {
      CAPTURE(tokens, ms, absl::FormatDuration(alone));
      const absl::Duration beside = time_to(tokens, absl::Milliseconds(ms), 12);
      CAPTURE(absl::FormatDuration(beside));
      CHECK(beside - alone <= 2 * kMost);  // in the running step, and in the job's last step
    }
  }
}

TEST_CASE("Streaming prompts compute enough to keep the fixed cost at half of a step") {
  PrefillEngine engine(WithoutFixedCost(/*blocks=*/64, absl::Milliseconds(1)));
  absl::Time now = absl::UnixEpoch();
  const auto step = [&] {  // takes 100 ms, and 1 ms for each token
    int64_t computed = 0;
    for (const SequenceSlice& slice : engine.StartStep(now)->slices) computed += std::ssize(slice.tokens);
    engine.FinishStep(absl::OkStatus(), now += absl::Milliseconds(100 + computed));
    return computed;
  };
  for (int i = 0; i < 20; ++i) {  // so many steps outweigh the estimate of the fixed cost
    PrefillJob job = JobOf(absl::StrCat(i), std::vector<TokenId>(i % 2 == 0 ? 17 : 161, 1));
    job.spec.cache_domain = job.request_id;
    REQUIRE_FALSE(engine.Add(std::move(job), now).has_value());
    step();
  }
  PrefillJob streaming = JobOf("open", std::vector<TokenId>(500, 2));
  streaming.streaming = true;
  REQUIRE_FALSE(engine.Add(std::move(streaming), now).has_value());
  CHECK(step() == 96);  // 100 tokens in whole blocks
}

TEST_CASE("PrefillDone lists the steps in which a request gained KV, also from others") {
  PrefillEngineOptions options = SmallOptions();
  options.blocks = 8;
  options.step_tokens = 32;
  PrefillEngine engine(options);
  absl::Time now = absl::UnixEpoch();
  const auto later = [&](int64_t ms) { return now += absl::Milliseconds(ms); };
  PrefillJob streaming = JobOf("open", std::vector<TokenId>(17, 1));
  streaming.streaming = true;
  REQUIRE_FALSE(engine.Add(std::move(streaming), now).has_value());
  REQUIRE(engine.StartStep(later(5)) != nullptr);
  engine.FinishStep(absl::OkStatus(), later(7));
  // Another request computes the next block.
  REQUIRE_FALSE(engine.Add(JobOf("other", std::vector<TokenId>(33, 1)), now).has_value());
  engine.Append({.request_id = "open", .tokens = std::vector<TokenId>(16, 1), .last = true, .decode_worker = {}}, now);
  REQUIRE(engine.StartStep(later(3)) != nullptr);
  engine.FinishStep(absl::OkStatus(), later(2));
  const std::vector<PrefillDone> results = DoneOf(engine.TakeActions(later(1)));
  REQUIRE(results.size() == 2);
  for (const PrefillDone& done : results) {
    const bool was_streaming = done.request_id == "open";
    INFO(done.request_id);
    REQUIRE(done.steps.size() == (was_streaming ? 2 : 1));
    if (was_streaming) {
      CHECK(done.steps[0].began == absl::Milliseconds(12));
      CHECK(done.steps[0].ended == absl::Milliseconds(5));
      CHECK(done.steps[0].tokens == 16);
    }
    CHECK(done.steps.back().began == absl::Milliseconds(2));
    CHECK(done.steps.back().ended == absl::ZeroDuration());
    CHECK(done.steps.back().tokens == done.computed_tokens - (was_streaming ? 16 : 0));
  }
}

}  // namespace
}  // namespace baton
