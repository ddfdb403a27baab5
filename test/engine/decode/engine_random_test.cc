// Random tests of DecodeEngine: jobs, cancellations and failures in a pool that runs out of blocks.
#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "catch.h"
#include "engine/decode/engine.h"
#include "engine/decode/outputs.h"
#include "seeds.h"

namespace baton {
namespace {

using Ahead = FakeBackend::Ahead;

// Returns random ids of which most are different.
std::vector<TokenId> RandomIds(std::mt19937& rng, size_t count) {
  std::vector<TokenId> ids(count);
  for (TokenId& id : ids) id = static_cast<TokenId>(rng() % FakeBackend::kVocab);
  return ids;
}

// Sets some of the parameters that exclude tokens or make them likelier.
void Constrain(std::mt19937& rng, SamplingParams& sampling) {
  if (rng() % 3 == 0) {
    const auto first = static_cast<TokenId>(rng() % 40);
    for (TokenId id = first; id < first + 5; ++id) sampling.logit_bias.push_back({id, rng() % 2 == 0 ? 3.0f : -100.0f});
  }
  if (rng() % 3 == 0) sampling.stop_ids = RandomIds(rng, 5);
  if (rng() % 3 == 0) sampling.min_tokens = static_cast<int32_t>(rng() % 20);
  if (rng() % 4 == 0) sampling.allowed_token_ids = RandomIds(rng, 1 + rng() % 30);
  if (rng() % 3 == 0) sampling.bad_words = {"a", "bc", "xa", "efg", "\u20ac"};
  if (rng() % 8 == 0) sampling.bad_words = {"ab", "ba", "aa", "bb"};
  if (rng() % 3 == 0) sampling.thinking_token_budget = static_cast<int32_t>(rng() % 6);
}

// Returns jobs with random prompts, sampling parameters and lengths. Some prompts share a prefix.
std::vector<DecodeJob> RandomJobs(std::mt19937& rng, int count, size_t longest_prompt, int most_tokens) {
  std::uniform_int_distribution<size_t> length(1, longest_prompt);
  std::uniform_int_distribution<int> tokens(1, most_tokens);
  const std::vector<TokenId> common = RandomPrompt(rng, longest_prompt);
  std::vector<DecodeJob> jobs;
  for (int i = 0; i < count; ++i) {
    std::vector<TokenId> prompt = RandomPrompt(rng, length(rng));
    if (rng() % 2 == 0) std::copy_n(common.begin(), std::min(prompt.size(), length(rng)), prompt.begin());
    DecodeJob job = TestJob(absl::StrCat("r", i), std::move(prompt), tokens(rng));
    if (rng() % 2 == 0) {
      job.spec.sampling.draw.temperature = 0.9f;
      job.spec.sampling.draw.top_p = 0.9f;
      job.spec.sampling.draw.repetition_penalty = 1.2f;
      job.spec.sampling.seed = rng();
    }
    if (rng() % 3 == 0) Constrain(rng, job.spec.sampling);
    if (rng() % 4 == 0) job.spec.sampling.stop = {"ab", "c", "\u20ac"};
    if (rng() % 4 == 0) job.spec.sampling.logprobs = static_cast<int32_t>(rng() % 3);
    job.spec.priority = static_cast<int32_t>(rng() % 3);
    job.spec.tenant = std::string(rng() % 3, 't');
    job.spec.expected_tokens = static_cast<int32_t>(rng() % static_cast<uint32_t>(most_tokens));
    jobs.push_back(std::move(job));
  }
  return jobs;
}

TEST_CASE("DecodeEngine gives the same output whatever runs beside the request") {
  int64_t preemptions = 0, ahead = 0, came_between = 0;
  const Seeds seeds = ForEachSeed(60, [&](uint64_t seed) {
    std::mt19937 rng(seed);
    std::vector<DecodeJob> jobs = RandomJobs(rng, 10, 60, 60);
    std::map<RequestId, Output> alone;
    for (const DecodeJob& job : jobs) alone[job.request_id] = RunAlone(job);
    std::shuffle(jobs.begin(), jobs.end(), rng);

    DecodeEngineOptions options = TestOptions(seed % 2 == 0 ? 9 : 12);
    options.max_batch = seed % 3 == 0 ? 2 : 64;
    options.shares_output = seed % 5 == 0;
    DecodeWorld world(options);
    world.backend.samples = seed % 4 < 2;
    std::mt19937 late_rng(seed);
    if (seed % 7 != 0) world.takes_late = &late_rng;
    world.backend.ahead = std::array{Ahead::kNever, Ahead::kAtOnce, Ahead::kLate, Ahead::kDeclined}[seed / 4 % 4];
    size_t next = 0;
    world.on_next_planned = [&] {
      if (next == jobs.size() || rng() % 4 == 0) return;
      const bool started = world.TryStartUnderReserved(jobs[next]);
      next += started;
      came_between += started;
    };
    for (DecodeJob& job : jobs) job.spec.arrival_offset = absl::Seconds(static_cast<int>(rng() % 60) - 30);
    while (next < jobs.size()) {
      if (world.TryStartUnderReserved(jobs[next])) ++next;
      for (uint32_t i = rng() % 4; i > 0; --i) world.Step();
    }
    world.RunAll();
    REQUIRE(world.outputs.size() == alone.size());
    for (const auto& [id, expected] : alone) {
      INFO(id);
      CheckSame(world.outputs.at(id), expected, world.backend.samples);
    }
    CHECK(world.AllBlocksBack());
    CHECK(world.engine.load().swapped == 0);
    preemptions += world.engine.load().preemptions;
    CHECK(world.engine.load().steps_ahead == world.backend.steps_ahead());
    ahead += world.backend.steps_ahead();
  });
  if (seeds.all()) {
    CHECK(preemptions > 20);
    CHECK(ahead > 500);
    CHECK(came_between > 50);
  }
}

// Starts a job that resumes `job` after its first `made` tokens. The prefill worker hands off KV of
// the prompt and this output, or of the prompt alone. Runs steps until there is room.
void StartResumed(DecodeWorld& world, DecodeJob job, std::span<const TokenId> made, bool has_kv) {
  DecodeJob handed = job;
  job.spec.tokens.Append(made);
  job.spec.generated = static_cast<int32_t>(made.size());
  if (has_kv) handed.spec.tokens = job.spec.tokens;
  while (!world.HandOffJob(handed)) BATON_CHECK(world.Step(), "no room, and nothing runs");
  job.reservation = handed.reservation;
  job.blocks = handed.blocks;
  const absl::Status started = world.engine.Start(std::move(job), world.now);
  BATON_CHECK(started.ok(), started.ToString());
}

TEST_CASE("DecodeEngine resumes an output with the tokens and text that were to follow") {
  int64_t resumed = 0, ahead = 0;
  const Seeds seeds = ForEachSeed(60, [&](uint64_t seed) {
    std::mt19937 rng(seed);
    std::vector<DecodeJob> jobs = RandomJobs(rng, 8, 60, 60);
    for (DecodeJob& job : jobs) job.spec.sampling.seed = rng();
    // The lost worker ran all jobs for some steps.
    DecodeWorld lost(TestOptions(64));
    for (const DecodeJob& job : jobs) lost.StartJob(job);
    for (uint32_t i = rng() % 40; i > 0; --i) lost.Step();
    lost.TakeEvents();

    DecodeEngineOptions options = TestOptions(16);
    options.max_batch = seed % 3 == 0 ? 2 : 64;
    options.shares_output = seed % 5 == 0;
    DecodeWorld world(options);
    world.backend.samples = seed % 4 < 2;
    world.backend.ahead = std::array{Ahead::kNever, Ahead::kAtOnce, Ahead::kLate, Ahead::kDeclined}[seed / 4 % 4];
    for (const DecodeJob& job : jobs) {
      const Output& before = lost.outputs[job.request_id];
      if (before.ended()) continue;
      StartResumed(world, job, before.tokens, /*has_kv=*/rng() % 2 == 0);
      ++resumed;
    }
    world.RunAll();
    for (const DecodeJob& job : jobs) {
      INFO(job.request_id);
      Output whole = lost.outputs.at(job.request_id);
      if (!whole.ended()) {
        const Output& after = world.outputs.at(job.request_id);
        whole.tokens.insert(whole.tokens.end(), after.tokens.begin(), after.tokens.end());
        whole.logprobs.insert(whole.logprobs.end(), after.logprobs.begin(), after.logprobs.end());
        whole.text += after.text;
        whole.finish = after.finish;
        whole.failure = after.failure;
        CHECK(after.queued.size() == 1);
      }
      CheckSame(whole, RunAlone(job), world.backend.samples);
    }
    CHECK(world.AllBlocksBack());
    ahead += world.backend.steps_ahead();
  });
  if (seeds.all()) {
    CHECK(resumed > 100);
    CHECK(ahead > 100);
  }
}

TEST_CASE("DecodeEngine goes on in a larger pool with the output that filled a smaller one") {
  int64_t incomplete = 0;  // small pools whose last update ended an incomplete character
  const Seeds seeds = ForEachSeed(60, [&](uint64_t seed) {
    std::mt19937 rng(seed);
    DecodeJob job = TestJob("r", RandomPrompt(rng, 20 + rng() % 8), 60);
    job.spec.sampling.draw.temperature = 1;
    job.spec.sampling.seed = seed;
    job.spec.sampling.logprobs = 0;
    job.spec.sampling.allowed_token_ids = {0, 1, 2, 26, 27};
    const Output whole = RunAlone(job);

    DecodeWorld small(TestOptions(3));
    small.StartJob(job);
    const size_t room = 3 * kBlockTokens - job.spec.tokens.size();
    while (small.outputs["r"].tokens.size() < room) REQUIRE(small.Step());
    const Output before = small.outputs["r"];
    CHECK_FALSE(before.ended());
    small.RunAll();
    // The router drops the last update, and so its token.
    CHECK(small.outputs["r"].tokens.size() == room + 1);
    CHECK(small.outputs["r"].finish == FinishReason::kLength);
    incomplete += !whole.text.starts_with(small.outputs["r"].text);

    DecodeWorld large(TestOptions(64));
    StartResumed(large, job, before.tokens, /*has_kv=*/rng() % 2 == 0);
    large.RunAll();
    Output joined = large.outputs["r"];
    joined.tokens.insert(joined.tokens.begin(), before.tokens.begin(), before.tokens.end());
    joined.logprobs.insert(joined.logprobs.begin(), before.logprobs.begin(), before.logprobs.end());
    joined.text = before.text + joined.text;
    CheckSame(joined, whole, /*backend_samples=*/false);
  });
  if (seeds.all()) CHECK(incomplete > 0);
}

TEST_CASE("DecodeEngine reports a prefix of the output and one end when a request is cut") {
  int64_t cancelled = 0, failed = 0;
  const Seeds seeds = ForEachSeed(60, [&](uint64_t seed) {
    std::mt19937 rng(seed);
    const std::vector<DecodeJob> jobs = RandomJobs(rng, 10, 40, 30);
    DecodeWorld world(TestOptions(10));
    world.backend.samples = rng() % 2 == 0;
    world.backend.ahead = std::array{Ahead::kNever, Ahead::kAtOnce, Ahead::kLate, Ahead::kDeclined}[rng() % 4];
    world.takes_late = &rng;
    const auto cancel_one = [&] { world.engine.Cancel(jobs[rng() % jobs.size()].request_id, world.now); };
    world.on_next_planned = [&] {
      if (rng() % 8 == 0) cancel_one();
    };
    for (const DecodeJob& job : jobs) {
      world.StartUnderReserved(job);
      for (uint32_t i = rng() % 6; i > 0; --i) {
        if (rng() % 8 == 0) cancel_one();
        if (rng() % 16 == 0) world.backend.FailNext(absl::UnavailableError("lost"));
        DecodeStep* step = world.Begin();
        if (rng() % 8 == 0) cancel_one();
        if (step != nullptr) world.Finish(*step);
      }
    }
    world.RunAll();
    REQUIRE(world.outputs.size() == jobs.size());
    for (const DecodeJob& job : jobs) {
      INFO(job.request_id);
      const Output &got = world.outputs.at(job.request_id), alone = RunAlone(job);
      REQUIRE(got.ended());
      REQUIRE(got.tokens.size() <= alone.tokens.size());
      CHECK(std::equal(got.tokens.begin(), got.tokens.end(), alone.tokens.begin()));
      if (got.finish == FinishReason::kCancelled) {
        ++cancelled;
        if (job.spec.sampling.stop.empty()) CHECK(got.text == TextOf(got.tokens, job.spec.tokens));
      } else if (got.finish) {
        CheckSame(got, alone, world.backend.samples);
      } else {
        ++failed;
      }
    }
    CHECK(world.AllBlocksBack());
    CHECK(world.engine.idle());
  });
  if (seeds.all()) {
    CHECK(cancelled > 50);
    CHECK(failed > 20);
  }
}

}  // namespace
}  // namespace baton
