// The log probabilities of prompts that a decode worker computes itself.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "catch.h"
#include "engine/decode/engine.h"
#include "engine/decode/outputs.h"
#include "model/token_logprobs.h"
#include "seeds.h"

namespace baton {
namespace {

using Ahead = FakeBackend::Ahead;

DecodeEngineOptions ScoringOptions(int64_t blocks, int32_t score_tokens = 8) {
  DecodeEngineOptions options = TestOptions(blocks);
  options.shares_output = true;
  options.scoring.step_tokens = score_tokens;
  return options;
}

DecodeJob ScoringJob(RequestId id, std::vector<TokenId> prompt, int32_t max_tokens, int32_t top = 2) {
  DecodeJob job = TestJob(std::move(id), std::move(prompt), max_tokens);
  job.spec.sampling.prompt_logprobs = top;
  return job;
}

DecodeJob WithoutScoring(DecodeJob job) {
  job.spec.sampling.prompt_logprobs.reset();
  return job;
}

// Returns the log probabilities from logits of one pass over the whole prompt.
PromptLogprobs InOnePass(const DecodeJob& job) {
  const std::span<const TokenId> tokens(job.spec.tokens);
  PromptLogprobs expected{{tokens.begin(), tokens.end()}, {}};
  if (tokens.size() == 1) return expected;
  FakeBackend alone(BlocksFor(std::ssize(tokens)));
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < BlocksFor(std::ssize(tokens)); ++i) blocks.push_back(BlockId(i));
  Batch batch;
  batch.slices.push_back(
      {.tokens = tokens.first(tokens.size() - 1), .blocks = blocks, .wants_logits = true, .all_logits = true});
  const LogitsView logits = alone.Forward(batch, [](int64_t) { return true; }).value();
  SamplerScratch scratch;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    const std::span row(logits.data + static_cast<int64_t>(i) * logits.vocab, static_cast<size_t>(logits.vocab));
    expected.logprobs.push_back(
        PromptLogprobsOf(row, tokens[i + 1], *job.spec.sampling.prompt_logprobs, scratch).value());
  }
  return expected;
}

void CheckPrompt(const Output& got, const DecodeJob& job) {
  INFO(job.request_id);
  const PromptLogprobs expected = InOnePass(job);
  REQUIRE(got.prompt.has_value());
  CHECK(got.prompt->tokens == expected.tokens);
  REQUIRE(got.prompt->logprobs.size() == expected.logprobs.size());
  for (size_t i = 0; i < expected.logprobs.size(); ++i) {
    CHECK(got.prompt->logprobs[i].logprob == expected.logprobs[i].logprob);
    CHECK(got.prompt->logprobs[i].top == expected.logprobs[i].top);
    CHECK(got.prompt->logprobs[i].rank == expected.logprobs[i].rank);
  }
}

// Starts a job without hand-off. Runs steps until there is room.
void StartScoring(DecodeWorld& world, const DecodeJob& job) {
  absl::Status started = world.engine.Start(job, world.now);
  while (absl::IsResourceExhausted(started)) {
    BATON_CHECK(world.Step(), "no room, and nothing runs");
    started = world.engine.Start(job, world.now);
  }
  BATON_CHECK(started.ok(), started.ToString());
}

TEST_CASE("DecodeEngine scores prompts to the same bits in any chunks and beside any neighbours") {
  int64_t preemptions = 0, ahead = 0;
  std::set<size_t> sizes;  // tokens of prompts in steps
  const Seeds seeds = ForEachSeed(60, [&](uint64_t seed) {
    std::mt19937 rng(seed);
    std::vector<DecodeJob> jobs;
    for (int i = 0; i < 10; ++i) {
      DecodeJob job = ScoringJob(absl::StrCat("r", i), RandomPrompt(rng, 1 + rng() % 60),
                                 static_cast<int32_t>(1 + rng() % 40), static_cast<int32_t>(rng() % 3));
      if (rng() % 3 == 0) job = WithoutScoring(job);
      if (rng() % 4 == 0) job.spec.sampling.logprobs = 1;
      job.spec.tenant = std::string(rng() % 3, 't');
      job.spec.priority = static_cast<int32_t>(rng() % 3);
      jobs.push_back(std::move(job));
    }
    const std::array<int32_t, 5> chunks = {1, 7, 16, 33, 64};
    DecodeWorld world(ScoringOptions(seed % 2 == 0 ? 9 : 12, chunks[seed % 5]));
    // Beside sequences, chunks follow these times.
    if (seed % 2 == 1) {
      world.time_of = [&](const DecodeStep& step) {
        sizes.insert(step.prompt_rows.size());
        return absl::Milliseconds(rng() % 50);
      };
    }
    world.backend.samples = seed % 3 != 0;
    world.backend.ahead = std::array{Ahead::kNever, Ahead::kAtOnce, Ahead::kLate, Ahead::kDeclined}[seed / 4 % 4];
    for (const DecodeJob& job : jobs) {
      job.spec.sampling.prompt_logprobs ? StartScoring(world, job) : world.StartUnderReserved(job);
      for (uint32_t i = rng() % 4; i > 0; --i) world.Step();
    }
    world.RunAll();
    for (const DecodeJob& job : jobs) {
      INFO(job.request_id);
      const Output& got = world.outputs.at(job.request_id);
      // The generated tokens are those of a request whose prompt a prefill worker computes.
      CheckSame(got, RunAlone(WithoutScoring(job)), world.backend.samples);
      CHECK(got.queued.size() == 1);
      if (job.spec.sampling.prompt_logprobs) {
        CheckPrompt(got, job);
      } else {
        CHECK(!got.prompt);
      }
    }
    CHECK(world.AllBlocksBack());
    CHECK(world.engine.idle());
    preemptions += world.engine.load().preemptions;
    ahead += world.backend.steps_ahead();
  });
  if (seeds.all()) {
    CHECK(preemptions > 20);
    CHECK(ahead > 100);
    CHECK(sizes.size() > 30);
  }
}

TEST_CASE("DecodeEngine computes at most score_tokens prompt tokens a step, and all sequences progress") {
  std::mt19937 rng(3);
  DecodeEngineOptions options = ScoringOptions(64, 8);
  options.scoring.step_time = absl::ZeroDuration();
  DecodeWorld world(options);
  for (int i = 0; i < 4; ++i) world.StartJob(TestJob(absl::StrCat("neighbour", i), RandomPrompt(rng, 5), 200));
  StartScoring(world, ScoringJob("long", RandomPrompt(rng, 100), 1));
  StartScoring(world, ScoringJob("short", RandomPrompt(rng, 4), 1));
  int64_t scored = 0;
  for (int steps = 0; world.engine.load().scoring > 0; ++steps) {
    REQUIRE(steps < 14);  // 99 + 3 tokens, 8 at a time
    std::array<size_t, 4> before{};
    for (size_t i = 0; i < 4; ++i) before[i] = world.outputs[absl::StrCat("neighbour", i)].tokens.size();
    DecodeStep* step = world.Begin();
    REQUIRE(step != nullptr);
    int64_t of_prompts = 0;
    for (size_t i = step->rows.size(); i < step->batch.slices.size(); ++i) {
      of_prompts += std::ssize(step->batch.slices[i].tokens);
    }
    CHECK(of_prompts <= 8);
    CHECK(std::ssize(step->prompt_rows) == of_prompts);
    scored += of_prompts;
    world.Finish(*step);
    for (size_t i = 0; i < 4; ++i) {
      CHECK(world.outputs[absl::StrCat("neighbour", i)].tokens.size() == before[i] + 1);
    }
  }
  CHECK(scored == 102);
  CHECK(world.engine.load().scored_tokens == 102);
}

// Runs steps until no prompt is scored. Returns their numbers of prompt tokens.
std::vector<int64_t> ChunksOf(DecodeWorld& world) {
  std::vector<int64_t> chunks;
  while (world.engine.load().scoring > 0) {
    DecodeStep* step = world.Begin();
    REQUIRE(step != nullptr);
    chunks.push_back(std::ssize(step->prompt_rows));
    world.Finish(*step);
  }
  return chunks;
}

TEST_CASE("DecodeEngine bounds the time of steps that score prompts beside sequences") {
  std::mt19937 rng(12);
  DecodeEngineOptions options = ScoringOptions(64, 64);
  absl::Duration each = absl::Milliseconds(1);
  std::vector<int64_t> expected(16, 20);
  SECTION("chunks fill the bound") {
    expected[0] = 0;  // measures the sequences alone
    expected[1] = 1;
    expected[15] = 19;
  }
  SECTION("a device that is too slow computes one token a step") {
    each = absl::Hours(1);
    expected.assign(298, 1);
    for (size_t i = 0; i < expected.size(); i += 17) expected[i] = 0;
  }
  SECTION("there is no bound") {
    options.scoring.step_time = absl::ZeroDuration();
    expected = {64, 64, 64, 64, 24};
  }
  DecodeWorld world(options);
  world.time_of = [&](const DecodeStep& step) { return absl::Milliseconds(5) + each * std::ssize(step.prompt_rows); };
  world.StartJob(TestJob("neighbour", RandomPrompt(rng, 5), 400));
  const DecodeJob job = ScoringJob("r", RandomPrompt(rng, 281), 0);
  StartScoring(world, job);
  CHECK(ChunksOf(world) == expected);
  CheckPrompt(world.outputs["r"], job);
}

TEST_CASE("DecodeEngine scores as many tokens as it can in steps without sequences") {
  std::mt19937 rng(13);
  DecodeWorld world(ScoringOptions(64, 64));
  world.time_of = [](const DecodeStep& step) {
    // Only the time of steps with sequences counts.
    return absl::Milliseconds(step.rows.empty() ? 5000 : 5 + std::ssize(step.prompt_rows));
  };
  world.StartJob(TestJob("neighbour", RandomPrompt(rng, 5), 4));
  StartScoring(world, ScoringJob("r", RandomPrompt(rng, 402), 0));
  CHECK(ChunksOf(world) == std::vector<int64_t>{0, 1, 20, 20, 64, 64, 64, 64, 64, 40});
  world.StartJob(TestJob("other", RandomPrompt(rng, 5), 50));
  StartScoring(world, ScoringJob("s", RandomPrompt(rng, 51), 0));
  CHECK(ChunksOf(world) == std::vector<int64_t>{20, 20, 10});
}

TEST_CASE("DecodeEngine measures the sequences in steps without scored prompts") {
  std::mt19937 rng(14);
  DecodeWorld world(ScoringOptions(64, 64));
  world.backend.samples = true;
  world.backend.ahead = GENERATE(Ahead::kNever, Ahead::kAtOnce);
  world.time_of = [](const DecodeStep& step) { return absl::Milliseconds(5 + std::ssize(step.prompt_rows)); };
  world.StartJob(TestJob("neighbour", RandomPrompt(rng, 5), 50));
  for (int i = 0; i < 5; ++i) world.Step();
  StartScoring(world, ScoringJob("r", RandomPrompt(rng, 62), 0));
  std::vector<int64_t> expected = {1, 20, 20, 20};
  // A step was enqueued before the prompt came.
  if (world.backend.ahead == Ahead::kAtOnce) expected.insert(expected.begin(), 0);
  CHECK(ChunksOf(world) == expected);
}

TEST_CASE("DecodeEngine neither reads nor leaves cached KV when it scores a prompt") {
  std::mt19937 rng(5);
  const std::vector<TokenId> prompt = RandomPrompt(rng, 50);
  DecodeWorld world(ScoringOptions(32));
  SECTION("no KV of the prompt is cached") {}
  SECTION("KV of the prompt is cached") {
    world.StartJob(TestJob("before", prompt, 1));
    world.RunAll();
    CHECK(world.engine.load().blocks.cached == 3);
  }
  const int64_t cached = world.engine.load().blocks.cached, computed = world.backend.tokens_computed();
  StartScoring(world, ScoringJob("r", prompt, 40));
  world.RunAll();
  CHECK(world.backend.tokens_computed() - computed == 49 + 40);
  CHECK(world.engine.load().blocks.cached == cached);
  CheckPrompt(world.outputs["r"], ScoringJob("r", prompt, 40));
  CHECK(world.AllBlocksBack());
}

TEST_CASE("DecodeEngine scores a prompt without generating when max_tokens is 0") {
  std::mt19937 rng(6);
  for (const size_t n : {1, 2, 17, 64}) {
    DecodeWorld world(ScoringOptions(4));
    const DecodeJob job = ScoringJob("r", RandomPrompt(rng, n), 0);
    StartScoring(world, job);
    world.RunAll();
    world.TakeEvents();
    CheckPrompt(world.outputs["r"], job);
    CHECK(world.outputs["r"].finish == FinishReason::kLength);
    CHECK(world.outputs["r"].tokens.empty());
    CHECK(world.AllBlocksBack());
  }
  DecodeWorld world(ScoringOptions(4));
  DecodeJob without = TestJob("without", {1, 2}, 1);
  REQUIRE(world.HandOffJob(without));
  without.spec.sampling.max_tokens = 0;
  CHECK(absl::IsInvalidArgument(world.engine.Start(without, world.now)));
}

TEST_CASE("DecodeEngine refuses to score a prompt when it cannot") {
  std::mt19937 rng(7);
  SECTION("another module prefills the prompts of its model") {
    DecodeWorld world(TestOptions(8));
    const absl::Status refused = world.engine.Start(ScoringJob("r", {1, 2, 3}, 1), world.now);
    CHECK(absl::IsUnimplemented(refused));
    CHECK(refused.message().find("frozen prefill module") != std::string_view::npos);
  }
  SECTION("the prompt can never fit") {
    DecodeWorld world(ScoringOptions(4));
    CHECK(absl::IsInvalidArgument(world.engine.Start(ScoringJob("r", RandomPrompt(rng, 66), 0), world.now)));
    CHECK(world.AllBlocksBack());
  }
  SECTION("the id is in use") {
    DecodeWorld world(ScoringOptions(8));
    StartScoring(world, ScoringJob("r", RandomPrompt(rng, 40), 1));
    CHECK(absl::IsFailedPrecondition(world.engine.Start(ScoringJob("r", {1, 2}, 1), world.now)));
  }
  SECTION("a range is wrong") {
    DecodeWorld world(ScoringOptions(8));
    for (const int32_t top : {-1, 21}) {
      CHECK(absl::IsInvalidArgument(world.engine.Start(ScoringJob("r", {1, 2}, 1, top), world.now)));
    }
  }
}

TEST_CASE("DecodeEngine reports room for a prompt that found none") {
  std::mt19937 rng(8);
  DecodeWorld world(ScoringOptions(8));
  StartScoring(world, ScoringJob("first", RandomPrompt(rng, 90), 1));
  const DecodeJob second = ScoringJob("second", RandomPrompt(rng, 60), 1);
  CHECK(absl::IsResourceExhausted(world.engine.Start(second, world.now)));
  CHECK(world.room == 0);
  world.RunAll();
  world.TakeEvents();
  CHECK(world.room == 1);
  StartScoring(world, second);
  world.RunAll();
  CheckPrompt(world.outputs["second"], second);
}

TEST_CASE("DecodeEngine frees the blocks of a prompt when its request is cut") {
  std::mt19937 rng(9);
  DecodeWorld world(ScoringOptions(16));
  StartScoring(world, ScoringJob("r", RandomPrompt(rng, 60), 10));
  Output& output = world.outputs["r"];
  SECTION("cancelled before its first step") { world.engine.Cancel("r", world.now); }
  SECTION("cancelled between steps") {
    world.Step();
    world.engine.Cancel("r", world.now);
  }
  SECTION("cancelled during a step, twice") {
    world.Step();
    DecodeStep* step = world.Begin();
    world.engine.Cancel("r", world.now);
    world.engine.Cancel("r", world.now);
    world.TakeEvents();
    CHECK(!output.finish);
    world.Finish(*step);
  }
  SECTION("cancelled during the last step of its prompt") {
    for (int i = 0; i < 7; ++i) world.Step();
    DecodeStep* step = world.Begin();
    world.engine.Cancel("r", world.now);
    world.Finish(*step);
  }
  SECTION("a step fails") {
    world.Step();
    world.backend.FailNext(absl::UnavailableError("lost"));
    world.Step();
    CHECK(absl::IsUnavailable(output.failure));
  }
  SECTION("a logit is not a number") {
    world.backend.at_logits = [](const SequenceSlice&, std::span<float> logits) {
      logits[3] = std::numeric_limits<float>::quiet_NaN();
    };
    world.Step();
    CHECK(absl::IsInternal(output.failure));
  }
  SECTION("all requests fail") {
    world.Step();
    world.engine.FailAll(absl::UnavailableError("shut down"));
    world.TakeEvents();
    CHECK(absl::IsUnavailable(output.failure));
  }
  world.TakeEvents();
  CHECK(output.ended());
  CHECK((output.finish == FinishReason::kCancelled) == output.failure.ok());
  CHECK(world.engine.idle());
  CHECK(world.AllBlocksBack());
  CHECK(!world.Step());
}

TEST_CASE("DecodeEngine computes a resumed prompt again and goes on with its output") {
  std::mt19937 rng(10);
  const DecodeJob job = ScoringJob("r", RandomPrompt(rng, 30), 20);
  const Output whole = RunAlone(WithoutScoring(job));
  DecodeJob resumed = job;
  resumed.spec.tokens.Append(std::span(whole.tokens).first(7));
  resumed.spec.generated = 7;
  DecodeWorld world(ScoringOptions(16));
  StartScoring(world, resumed);
  world.RunAll();
  const Output& after = world.outputs["r"];
  CHECK(after.tokens == std::vector(whole.tokens.begin() + 7, whole.tokens.end()));
  CHECK(!after.prompt);  // its client has it already
  CHECK(world.AllBlocksBack());
}

TEST_CASE("DecodeEngine gives tenants equally many tokens of scored prompts") {
  std::mt19937 rng(11);
  DecodeWorld world(ScoringOptions(64, 8));
  for (int i = 0; i < 4; ++i) {
    DecodeJob job = ScoringJob(absl::StrCat("many", i), RandomPrompt(rng, 81), 0);
    job.spec.tenant = "many";
    StartScoring(world, job);
  }
  for (int i = 0; i < 5; ++i) world.Step();
  DecodeJob job = ScoringJob("one", RandomPrompt(rng, 41), 0);
  job.spec.tenant = "one";
  StartScoring(world, job);
  // Every other step computes 8 of its 40 tokens, beginning with the first.
  for (int i = 0; i < 8; ++i) world.Step();
  CHECK(!world.outputs["one"].ended());
  world.Step();
  CHECK(world.outputs["one"].ended());
}

}  // namespace
}  // namespace baton
