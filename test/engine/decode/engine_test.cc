#include "engine/decode/engine.h"

#include <algorithm>
#include <limits>
#include <random>

#include "catch.h"
#include "engine/decode/outputs.h"

namespace baton {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST_CASE("DecodeEngine makes the tokens of one pass over the whole sequence") {
  for (const size_t n : {1, 2, 15, 16, 17, 18, 32, 33, 50}) {
    INFO("prompt of " << n);
    std::mt19937 rng(static_cast<uint32_t>(n));
    const std::vector<TokenId> prompt = RandomPrompt(rng, n);
    const Output output = RunAlone(TestJob("r", prompt, 40));
    CHECK(output.tokens == FakeBackend::Greedy(prompt, 40));
    CHECK(output.text == TextOf(output.tokens, prompt));
    CHECK(output.finish == FinishReason::kLength);
  }
}

TEST_CASE("DecodeEngine reports the time in the queue once, when the first step begins") {
  DecodeEngineOptions options = TestOptions(16);
  options.max_batch = 1;
  DecodeWorld world(options);
  world.StartJob(TestJob("first", {1, 2, 3}, 4));
  world.StartJob(TestJob("second", {4, 5, 6}, 4));
  DecodeStep* step = world.Begin();
  CHECK(world.outputs["first"].queued == std::vector{absl::ZeroDuration()});
  world.Finish(*step);
  world.RunAll();
  CHECK(world.outputs["first"].queued.size() == 1);
  CHECK(world.outputs["second"].queued == std::vector{absl::Milliseconds(40)});  // four steps
}

TEST_CASE("DecodeEngine ends an output without text at a stop id unless ignore_eos is set") {
  std::mt19937 rng(4);
  const std::vector<TokenId> prompt = RandomPrompt(rng, 20);
  const std::vector<TokenId> greedy = FakeBackend::Greedy(prompt, 12);
  const auto first = std::find(greedy.begin(), greedy.end(), greedy[6]);
  const std::vector<TokenId> until(greedy.begin(), first + 1);

  DecodeJob job = TestJob("r", prompt, 12);
  job.spec.sampling.stop_ids = {greedy[6]};
  const Output stopped = RunAlone(job);
  CHECK(stopped.tokens == until);
  CHECK(stopped.text == TextOf(std::span(until).first(until.size() - 1), prompt));
  CHECK(stopped.finish == FinishReason::kStop);

  DecodeEngineOptions options = TestOptions(16);
  options.model.eos_ids = {greedy[6]};
  DecodeWorld world(options);
  world.StartJob(TestJob("eos", prompt, 12));
  DecodeJob ignoring = TestJob("ignoring", prompt, 12);
  ignoring.spec.sampling.ignore_eos = true;
  world.StartJob(ignoring);
  world.RunAll();
  CHECK(world.outputs["eos"].tokens == until);
  CHECK(world.outputs["eos"].finish == FinishReason::kStop);
  CHECK(world.outputs["ignoring"].tokens == greedy);
  CHECK(world.outputs["ignoring"].finish == FinishReason::kLength);
}

TEST_CASE("DecodeEngine ends the text before a stop string, however tokens split it") {
  std::mt19937 rng(9);
  const std::vector<TokenId> prompt = RandomPrompt(rng, 5);
  const std::string whole = TextOf(FakeBackend::Greedy(prompt, 30));
  size_t at = 10;
  while (!std::all_of(&whole[at], &whole[at + 3], [](char c) { return static_cast<signed char>(c) > 0; })) ++at;
  const std::string stop = whole.substr(at, 3);
  DecodeJob job = TestJob("r", prompt, 30);
  job.spec.sampling.stop = {stop};
  const Output output = RunAlone(job);
  CHECK(output.text == whole.substr(0, whole.find(stop)));
  CHECK(output.finish == FinishReason::kStop);
  CHECK(output.tokens.size() < 30);
}

TEST_CASE("DecodeEngine ends an output with kLength at the context length") {
  DecodeEngineOptions options = TestOptions(64);
  options.model.positions = 40;
  DecodeWorld world(options);
  std::mt19937 rng(2);
  const std::vector<TokenId> prompt = RandomPrompt(rng, 30);
  world.StartJob(TestJob("r", prompt, 1000));
  world.StartJob(TestJob("full", RandomPrompt(rng, 40), 1000));
  world.RunAll();
  // Ten positions are left, and the last token needs no position.
  CHECK(world.outputs["r"].tokens == FakeBackend::Greedy(prompt, 11));
  CHECK(world.outputs["r"].finish == FinishReason::kLength);
  CHECK(world.outputs["full"].tokens.size() == 1);

  DecodeJob longer = TestJob("longer", RandomPrompt(rng, 41), 1);
  const ReserveReply reply = world.engine.handoff().OnReserve(ReserveFor(longer), world.now).value();
  CHECK(std::holds_alternative<NeverFits>(reply));
}

TEST_CASE("DecodeEngine ends a request once and frees its blocks when it is cancelled") {
  std::mt19937 rng(6);
  const std::vector<TokenId> prompt = RandomPrompt(rng, 40);
  DecodeWorld world(TestOptions(9));
  DecodeJob job = TestJob("r", prompt, 50);

  SECTION("the request is unknown") {
    world.engine.Cancel("r", world.now);
    CHECK(world.outputs.empty());
  }
  SECTION("the request's blocks are reserved, and they wait for the writer") {
    const ReserveReply reply = world.engine.handoff().OnReserve(ReserveFor(job), world.now).value();
    world.engine.Cancel("r", world.now);
    CHECK(!world.AllBlocksBack());
    world.engine.handoff().OnRelease({std::get<Reserved>(reply).reservation}, world.now);
    CHECK(world.outputs.empty());
  }
  SECTION("the request's blocks are committed, and Start then fails") {
    REQUIRE(world.HandOffJob(job));
    world.engine.Cancel("r", world.now);
    CHECK(world.engine.Start(job, world.now).code() == absl::StatusCode::kFailedPrecondition);
    CHECK(world.outputs.empty());
  }
  SECTION("the request has started and has not been in a step") {
    world.StartJob(job);
    world.engine.Cancel("r", world.now);
    world.TakeEvents();
    CHECK(world.outputs["r"].finish == FinishReason::kCancelled);
    CHECK(world.outputs["r"].tokens.empty());
  }
  SECTION("the request is between steps, and the text that was held back is reported") {
    const std::string first = TextOf(FakeBackend::Greedy(prompt, 3));
    job.spec.sampling.stop = {first + "#"};
    world.StartJob(job);
    for (int i = 0; i < 3; ++i) world.Step();
    CHECK(world.outputs["r"].text.empty());
    world.engine.Cancel("r", world.now);
    world.TakeEvents();
    CHECK(world.outputs["r"].finish == FinishReason::kCancelled);
    CHECK(world.outputs["r"].text == first);
  }
  SECTION("the request is part of the running step") {
    world.StartJob(job);
    DecodeStep* step = world.Begin();
    REQUIRE(step != nullptr);
    world.engine.Cancel("r", world.now);
    world.engine.Cancel("r", world.now);
    world.TakeEvents();
    CHECK_FALSE(world.outputs["r"].ended());  // only its start
    world.Finish(*step);
    CHECK(world.outputs["r"].finish == FinishReason::kCancelled);
    CHECK(world.outputs["r"].tokens.size() == 1);
  }
  SECTION("the request is not part of the running step") {
    world.StartJob(TestJob("old", RandomPrompt(rng, 40), 3));
    DecodeStep* step = world.Begin();
    REQUIRE(step != nullptr);
    world.StartJob(job);
    world.engine.Cancel("r", world.now);
    world.TakeEvents();
    CHECK(world.outputs["r"].finish == FinishReason::kCancelled);
    world.Finish(*step);
    world.RunAll();
    CHECK(world.outputs["old"].tokens.size() == 3);
  }
  SECTION("the request is being swapped out, or is swapped") {
    const int steps_late = GENERATE(0, 1);
    for (const DecodeJob& j : {TestJob("old", RandomPrompt(rng, 40), 50), job}) {
      world.StartUnderReserved(j);  // 3 blocks each, and 6 at the end
    }
    DecodeStep* step = nullptr;
    while (true) {
      step = world.Begin();
      REQUIRE(step != nullptr);
      if (!step->out.empty()) break;
      world.Finish(*step);
    }
    if (steps_late == 0) world.engine.Cancel("r", world.now);
    world.Finish(*step);
    if (steps_late == 1) {
      CHECK(world.engine.load().swapped == 1);
      world.engine.Cancel("r", world.now);
      world.TakeEvents();
    }
    CHECK(world.engine.load().swapped == 0);
    CHECK(world.outputs["r"].finish == FinishReason::kCancelled);
    world.RunAll();
    CHECK(world.outputs["old"].tokens.size() == 50);
  }
  world.RunAll();
  world.engine.CheckInvariants();
  CHECK(world.AllBlocksBack());
  CHECK(world.engine.idle());
}

TEST_CASE("DecodeEngine reports a step's tokens before later events") {
  const std::vector<TokenId> prompt = {1, 2, 3}, tokens = FakeBackend::Greedy(prompt, 3);
  DecodeWorld world(TestOptions(32));
  DecodeJob with_stop = TestJob("with stop", prompt, 9);
  with_stop.spec.sampling.stop = {TextOf(tokens) + "#"};  // so that text is held back
  DecodeJob last = TestJob("last", prompt, 3);
  last.spec.sampling.logprobs = 0;
  world.StartJob(with_stop);
  world.StartJob(TestJob("plain", prompt, 9));
  world.StartJob(last);
  world.Step();
  world.Step();
  DecodeStep* step = world.Begin();
  REQUIRE(step != nullptr);
  const absl::StatusOr<LogitsView> logits = world.backend.Forward(step->batch, [](int64_t) { return true; });
  for (int64_t i = 0; i < std::ssize(step->rows); ++i) step->Sample(i, *logits, world.scratch);
  world.engine.FinishStep({});
  CHECK(world.engine.load().tokens_out == 9);
  CHECK(world.engine.load().finished == 1);
  CHECK(world.engine.load().running == 2);

  absl::Status failure;
  std::optional<FinishReason> finish = FinishReason::kCancelled;
  size_t others = tokens.size();
  SECTION("the requests are cancelled") {
    world.engine.Cancel("plain", world.now);
    world.engine.Cancel("with stop", world.now);
  }
  SECTION("the requests fail") {
    failure = absl::UnavailableError("over");
    finish = std::nullopt;
    world.engine.FailAll(failure);
  }
  SECTION("the next step fails") {
    failure = absl::UnavailableError("the device is lost");
    finish = std::nullopt;
    REQUIRE(world.engine.BeginStep(world.now) != nullptr);
    world.engine.FinishStep({.status = failure});
  }
  SECTION("the requests are cancelled in the next step and receive its token") {
    step = world.engine.BeginStep(world.now);
    REQUIRE(step != nullptr);
    world.engine.Cancel("plain", world.now);
    world.engine.Cancel("with stop", world.now);
    world.Finish(*step);
    ++others;
  }
  world.TakeEvents();
  world.engine.CheckInvariants();
  for (const char* id : {"plain", "with stop"}) {
    INFO(id);
    const Output& output = world.outputs[id];
    CHECK(output.tokens == FakeBackend::Greedy(prompt, static_cast<int64_t>(others)));
    CHECK(output.finish == finish);
    CHECK(output.failure == failure);
    CHECK(output.queued.size() == 1);
  }
  // A request that fails has only the text that cannot be the beginning of a stop string.
  CHECK(world.outputs["with stop"].text == (finish ? TextOf(FakeBackend::Greedy(prompt, others)) : ""));
  CHECK(world.outputs["last"].tokens == tokens);
  CHECK(world.outputs["last"].text == TextOf(tokens));
  CHECK(world.outputs["last"].logprobs.size() == 3);
  CHECK(world.outputs["last"].finish == FinishReason::kLength);
  CHECK(world.engine.idle());
  CHECK(world.AllBlocksBack());
}

TEST_CASE("DecodeEngine fails the requests of a failed step and frees their blocks") {
  std::mt19937 rng(8);
  DecodeWorld world(TestOptions(32));
  world.StartJob(TestJob("a", RandomPrompt(rng, 20), 50));
  world.StartJob(TestJob("b", RandomPrompt(rng, 30), 50));
  world.Step();
  world.backend.FailNext(absl::UnavailableError("the device is lost"));
  world.Step();
  for (const char* id : {"a", "b"}) {
    CHECK(world.outputs[id].tokens.size() == 1);
    CHECK(world.outputs[id].failure == absl::UnavailableError("the device is lost"));
  }
  CHECK(world.AllBlocksBack());
  const std::vector<TokenId> prompt = RandomPrompt(rng, 20);
  world.StartJob(TestJob("c", prompt, 5));
  world.RunAll();
  CHECK(world.outputs["c"].tokens == FakeBackend::Greedy(prompt, 5));
}

TEST_CASE("DecodeEngine fails only the request whose logits are not finite") {
  const bool samples = GENERATE(false, true);
  const float bad = GENERATE(std::nanf(""), kInf, -kInf);
  DecodeWorld world(TestOptions(32));
  world.backend.samples = samples;
  world.backend.at_logits = [&](const SequenceSlice& slice, std::span<float> logits) {
    if (slice.start == 5) std::fill(logits.begin(), logits.end(), bad);
  };
  world.StartJob(TestJob("bad", {1, 2, 3, 4}, 9));  // fails at its third token
  world.StartJob(TestJob("good", {5, 6, 7, 8, 9, 1, 2}, 5));
  world.RunAll();
  CHECK(world.outputs["bad"].tokens == FakeBackend::Greedy({1, 2, 3, 4}, 2));
  CHECK(world.outputs["bad"].failure ==
        absl::InternalError(absl::StrCat("logits of output token 2 are not finite: largest is ", bad)));
  CHECK(world.outputs["good"].tokens == FakeBackend::Greedy({5, 6, 7, 8, 9, 1, 2}, 5));
  CHECK(world.AllBlocksBack());
}

TEST_CASE("DecodeEngine uses logits when a request wants top log probabilities") {
  std::vector<DecodeJob> jobs;
  const auto add = [&](RequestId id, const SamplingParams& sampling) {
    DecodeJob& job = jobs.emplace_back(TestJob(std::move(id), {1, 2, 3}, 0));
    job.spec.sampling = sampling;
  };
  add("greedy", {.draw = {.temperature = 0}, .max_tokens = 30});
  add("stop", {.draw = {.temperature = 0}, .max_tokens = 30, .stop_ids = {FakeBackend::Greedy({1, 2, 3}, 8).back()}});
  add("chosen", {.draw = {.temperature = 0}, .max_tokens = 30, .logprobs = 0});
  add("top", {.draw = {.temperature = 0}, .max_tokens = 30, .logprobs = 3});
  add("drawn", {.draw = {.temperature = 0.7f, .top_k = 30}, .seed = 4, .max_tokens = 30, .logprobs = 0});
  add("penalised", {.draw = {.top_p = 0.9f,
                             .min_p = 0.01f,
                             .repetition_penalty = 1.3f,
                             .presence_penalty = 0.2f,
                             .frequency_penalty = 0.1f},
                    .seed = 9,
                    .max_tokens = 30});
  add("top of penalised", {.draw = {.frequency_penalty = 0.5f}, .seed = 9, .max_tokens = 30, .logprobs = 1});

  DecodeWorld world(TestOptions(64));
  world.backend.samples = true;
  for (const DecodeJob& job : jobs) world.StartUnderReserved(job);
  DecodeStep* step = world.Begin();
  REQUIRE(step != nullptr);
  REQUIRE(step->rows.size() == jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    INFO(jobs[i].request_id);
    const SequenceSlice& slice = step->batch.slices[i];
    CHECK((slice.sample == nullptr) == (jobs[i].spec.sampling.logprobs.value_or(0) > 0));
    if (slice.sample != nullptr) CHECK(slice.sample->draw.temperature == jobs[i].spec.sampling.draw.temperature);
  }
  world.Finish(*step);
  world.RunAll();
  for (const DecodeJob& job : jobs) {
    INFO(job.request_id);
    CheckSame(world.outputs.at(job.request_id), RunAlone(job), /*backend_samples=*/true);
  }
}

TEST_CASE("DecodeEngine lets a step be enqueued ahead unless the last one needs logits") {
  DecodeWorld world(TestOptions(32));
  world.backend.samples = true;
  world.backend.ahead = FakeBackend::Ahead::kLate;
  const std::vector<TokenId> prompt = {1, 2, 3};
  world.StartJob(TestJob("plain", prompt, 9));
  for (int i = 0; i < 3; ++i) world.Step();
  CHECK(world.engine.load().steps_ahead == 2);
  DecodeJob job = TestJob("with logits", prompt, 2);
  job.spec.sampling.logprobs = 2;
  world.StartJob(job);
  world.Step();  // was enqueued before the request arrived
  CHECK(world.engine.load().steps_ahead == 3);
  world.Step();  // has the request; the step before it needed no logits
  CHECK(world.engine.load().steps_ahead == 4);
  world.Step();
  CHECK(world.engine.load().steps_ahead == 4);
  world.RunAll();
  CHECK(world.engine.load().steps == 9);
  CHECK(world.engine.load().steps_ahead == 6);
  CHECK(world.outputs["plain"].tokens == FakeBackend::Greedy(prompt, 9));
  CHECK(world.outputs["with logits"].tokens == FakeBackend::Greedy(prompt, 2));
}

TEST_CASE("DecodeEngine discards rows of ended requests, and fails both steps together") {
  DecodeWorld world(TestOptions(32));
  world.backend.samples = true;
  world.backend.ahead = FakeBackend::Ahead::kLate;
  const std::vector<TokenId> prompt = {1, 2, 3}, tokens = FakeBackend::Greedy(prompt, 9);
  DecodeJob stops = TestJob("stops", prompt, 9);
  stops.spec.sampling.stop_ids = {tokens[2]};
  world.StartJob(stops);
  world.StartJob(TestJob("cancelled", prompt, 9));
  world.StartJob(TestJob("others", prompt, 9));
  world.Step();
  world.Step();
  world.on_next_planned = [&] { world.engine.Cancel("cancelled", world.now); };
  world.Step();
  world.on_next_planned = nullptr;
  CHECK(world.outputs["stops"].finish == FinishReason::kStop);
  CHECK(world.outputs["stops"].tokens.size() == 3);
  world.TakeEvents();
  CHECK(world.outputs["cancelled"].finish == FinishReason::kCancelled);
  CHECK(world.outputs["cancelled"].tokens.size() == 3);
  CHECK(world.engine.load().running == 1);
  DecodeStep* step = world.Begin();
  CHECK(step->batch.started);
  CHECK(step->rows.size() == 3);
  world.Finish(*step);
  CHECK(world.engine.load().tokens_out == 10);
  world.StartJob(TestJob("came", prompt, 2));
  world.Step();  // begins the first step with "came"
  world.backend.FailNext(absl::UnavailableError("lost"));
  world.RunAll();
  CHECK(world.outputs["others"].failure == absl::UnavailableError("lost"));
  CHECK(world.outputs["came"].failure == absl::UnavailableError("lost"));
  CHECK(world.engine.idle());
  CHECK(world.AllBlocksBack());
}

TEST_CASE("DecodeEngine leaves a request that is cancelled during a step out of the next") {
  DecodeWorld world(TestOptions(32));
  world.backend.samples = true;
  world.backend.ahead = FakeBackend::Ahead::kLate;
  world.StartJob(TestJob("cancelled", {1, 2, 3}, 9));
  world.StartJob(TestJob("other", {1, 2, 3}, 9));
  DecodeStep* step = world.Begin();
  world.engine.Cancel("cancelled", world.now);
  world.Finish(*step);
  step = world.Begin();
  CHECK((step->batch.started && step->rows.size() == 1));
  world.Finish(*step);
}

TEST_CASE("DecodeEngine ends a cancelled request at once when its next step is dropped") {
  DecodeEngineOptions options = TestOptions(32);
  options.max_batch = 1;
  DecodeWorld world(options);
  world.backend.samples = true;
  world.backend.ahead = FakeBackend::Ahead::kDeclined;
  world.StartJob(TestJob("first", {1, 2, 3}, 1));
  DecodeStep* step = world.Begin();
  world.StartJob(TestJob("cancelled", {4, 5, 6}, 9));
  world.on_next_planned = [&] {
    DecodeJob urgent = TestJob("urgent", {7, 8, 9}, 9);
    urgent.spec.priority = 10;
    world.StartJob(std::move(urgent));
    world.engine.Cancel("cancelled", world.now);
    world.on_next_planned = nullptr;
  };
  world.Finish(*step);
  world.TakeEvents();
  CHECK(world.outputs["cancelled"].finish == FinishReason::kCancelled);
  CHECK(world.engine.load().running == 1);
  world.RunAll();
  CHECK(world.AllBlocksBack());
}

TEST_CASE("DecodeEngine::Start refuses wrong values and keeps nothing") {
  DecodeWorld world(TestOptions(16));
  DecodeJob job = TestJob("r", {1, 2, 3, 4}, 5);
  REQUIRE(world.HandOffJob(job));
  SECTION("a token outside the vocabulary") {
    job.spec.tokens = std::vector<TokenId>{1, FakeBackend::kVocab, 3, 4};
    CHECK(world.engine.Start(job, world.now).code() == absl::StatusCode::kInvalidArgument);
  }
  SECTION("an invalid sampling parameter") {
    job.spec.sampling.draw.top_p = 2;
    CHECK(world.engine.Start(job, world.now).code() == absl::StatusCode::kInvalidArgument);
  }
  SECTION("a job without tokens") {
    job.spec.tokens = {};
    CHECK(world.engine.Start(job, world.now).code() == absl::StatusCode::kInvalidArgument);
  }
  SECTION("a prompt length that differs from that of the hand-off") {
    job.spec.tokens.Append(std::vector<TokenId>(26));
    CHECK(world.engine.Start(job, world.now).code() == absl::StatusCode::kFailedPrecondition);
  }
  SECTION("the incarnation of another process") {
    job.decode_incarnation = Incarnation(6);
    CHECK(world.engine.Start(job, world.now).code() == absl::StatusCode::kFailedPrecondition);
  }
  CHECK(world.engine.idle());
  CHECK(world.AllBlocksBack());
}

TEST_CASE("DecodeEngine refuses a repeated Start and keeps the first") {
  DecodeWorld world(TestOptions(16));
  DecodeJob job = TestJob("r", {1, 2, 3, 4}, 5);
  REQUIRE(world.HandOffJob(job));
  REQUIRE(world.engine.Start(job, world.now).ok());
  CHECK(world.engine.Start(job, world.now).code() == absl::StatusCode::kFailedPrecondition);
  world.RunAll();
  CHECK(world.outputs["r"].tokens == FakeBackend::Greedy({1, 2, 3, 4}, 5));
}

TEST_CASE("DecodeEngine::Start gives up a second hand-off of a running request") {
  DecodeWorld world(TestOptions(16));
  DecodeJob job = TestJob("r", {1, 2, 3, 4}, 5), again = job;
  REQUIRE(world.HandOffJob(job));
  REQUIRE(world.HandOffJob(again));
  REQUIRE(world.engine.Start(job, world.now).ok());
  CHECK(world.engine.Start(again, world.now).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(world.engine.load().committed == 0);
  world.RunAll();
  CHECK(world.outputs["r"].tokens == FakeBackend::Greedy({1, 2, 3, 4}, 5));
  CHECK(world.AllBlocksBack());
}

TEST_CASE("DecodeEngine makes the same tokens when blocks are checked") {
  DecodeEngineOptions options = TestOptions(16);
  options.handoff.verify = true;
  DecodeWorld world(options);
  std::mt19937 rng(5);
  const DecodeJob job = TestJob("r", RandomPrompt(rng, 40), 5);
  world.StartJob(job);
  CHECK_FALSE(world.Step());  // nothing runs before the check
  CHECK_FALSE(world.engine.idle());
  CHECK(world.engine.load().committed == 1);
  world.RunChecks();
  world.RunAll();
  CHECK(world.outputs["r"].tokens == RunAlone(job).tokens);
  CHECK(world.engine.load().blocks.cached == 2);
  CHECK(world.AllBlocksBack());
}

TEST_CASE("DecodeEngine makes no token when blocks were forged") {
  DecodeEngineOptions options = TestOptions(16);
  options.handoff.verify = true;
  DecodeWorld world(options);
  std::mt19937 rng(5);
  DecodeJob job = TestJob("r", RandomPrompt(rng, 40), 5);
  REQUIRE(world.HandOffJob(job));
  world.backend.kv_slab().host()[0] ^= std::byte{1};
  REQUIRE(world.engine.Start(job, world.now).ok());
  world.RunChecks();
  world.RunAll();
  CHECK(world.outputs["r"].failure.code() == absl::StatusCode::kDataLoss);
  CHECK(world.outputs["r"].tokens.empty());
  CHECK(world.engine.load().blocks.free == 16);
  CHECK(world.engine.load().failed == 1);
  CHECK(world.engine.load().failed_checks == 1);
  CHECK(world.engine.idle());
}

TEST_CASE("DecodeEngine refuses a second Start while a request is checked") {
  for (const bool cancel : {true, false}) {
    DecodeEngineOptions options = TestOptions(16);
    options.handoff.verify = true;
    DecodeWorld world(options);
    DecodeJob job = TestJob("r", {1, 2, 3, 4}, 5), again = job;
    REQUIRE(world.HandOffJob(job));
    REQUIRE(world.HandOffJob(again));
    REQUIRE(world.engine.Start(job, world.now).ok());
    CHECK(world.engine.Start(again, world.now).code() == absl::StatusCode::kFailedPrecondition);
    CHECK(world.engine.load().committed == 1);  // the second hand-off is given up
    if (cancel) {
      world.engine.Cancel("r", world.now);
    } else {
      world.engine.FailAll(absl::UnavailableError("over"));
    }
    CHECK(world.engine.idle());
    world.RunChecks();  // the request has ended before
    CHECK_FALSE(world.Step());
    CHECK(world.outputs["r"].tokens.empty());
    CHECK(world.outputs["r"].finish.has_value() == cancel);
    CHECK(world.outputs["r"].failure.ok() == cancel);
    CHECK(world.AllBlocksBack());
  }
}

TEST_CASE("DecodeEngine counts no growth of a reservation beyond the context length") {
  DecodeEngineOptions options = TestOptions(16);
  options.model.positions = 64;
  DecodeWorld world(options);
  DecodeJob greedy = TestJob("greedy", {1, 2, 3, 4}, std::numeric_limits<int32_t>::max());
  REQUIRE(world.HandOffJob(greedy));
  CHECK(world.engine.handoff().outstanding().growth_blocks == 3);
  DecodeJob other = TestJob("other", {5, 6}, 5);
  CHECK(world.HandOffJob(other));
}

TEST_CASE("DecodeEngine keeps output blocks only when the modules are equal") {
  for (const bool shares_output : {false, true}) {
    DecodeEngineOptions options = TestOptions(32);
    options.shares_output = shares_output;
    DecodeWorld world(options);
    std::mt19937 rng(3);
    std::vector<TokenId> prompt = RandomPrompt(rng, 40);
    world.StartJob(TestJob("turn1", prompt, 40));
    world.RunAll();
    CHECK(world.engine.load().blocks.cached == (shares_output ? 4 : 2));  // 79 positions have KV

    const std::vector<TokenId>& output = world.outputs["turn1"].tokens;
    prompt.insert(prompt.end(), output.begin(), output.end());
    DecodeJob next = TestJob("turn2", prompt, 10);
    const ReserveReply reply = world.engine.handoff().OnReserve(ReserveFor(next), world.now).value();
    CHECK(std::get<Reserved>(reply).missing.size() == (shares_output ? 1 : 3));
    world.engine.handoff().OnRelease({std::get<Reserved>(reply).reservation}, world.now);
    world.StartJob(next);
    world.RunAll();
    CHECK(world.outputs["turn2"].tokens == FakeBackend::Greedy(prompt, 10));
    CHECK(world.AllBlocksBack());
  }
}

TEST_CASE("DecodeEngine gives different tokens to requests without a seed") {
  DecodeWorld world(TestOptions(32));
  for (const char* id : {"a", "b"}) {
    DecodeJob job = TestJob(id, {1, 2, 3}, 20);
    job.spec.sampling.draw.temperature = 1;
    world.StartJob(job);
  }
  world.RunAll();
  CHECK(world.outputs["a"].tokens != world.outputs["b"].tokens);
}

}  // namespace
}  // namespace baton
