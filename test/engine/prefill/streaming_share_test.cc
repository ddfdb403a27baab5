#include "engine/prefill/streaming_share.h"

#include <memory>
#include <vector>

#include "catch.h"
#include "engine/prefill/prompts.h"

namespace baton {
namespace {

constexpr OpenPromptLimits kLimits{.increment = 64, .step_tokens = 128, .alone = 32};

struct Share {
  ScheduledPrompt& Add(int64_t blocks, bool streams, int32_t priority = 0) {
    auto prompt = MakePrompt("p", static_cast<TokenId>(prompts.size() + 1), blocks);
    prompt->task.open = streams;
    prompt->task.priority = priority;
    share.OnAdded(*prompt);
    queue.Insert(prompt.get());
    prompts.push_back(std::move(prompt));
    return *prompts.back();
  }
  // A step that computes all of these, and `tokens` for those that yield.
  void Plan(const std::vector<ScheduledPrompt*>& step, int64_t tokens, bool alone = false) {
    for (ScheduledPrompt* prompt : step) {
      prompt->planned = prompt->wanted;
      queue.Erase(prompt);
    }
    share.OnPlanned(queue, step, tokens, alone);
  }

  StreamingShare share{kLimits};
  PromptQueue queue;
  std::vector<std::unique_ptr<ScheduledPrompt>> prompts;
};

}  // namespace

TEST_CASE("a streaming prompt takes part beside others once an increment of it waits") {
  Share s;
  CHECK_FALSE(s.share.IsWorthwhile(s.Add(3, /*streams=*/true)));
  CHECK(s.share.IsWorthwhile(s.Add(4, /*streams=*/true)));
  CHECK(s.share.IsWorthwhile(s.Add(1, /*streams=*/false)));
  s.share.Limit({.increment = 16, .step_tokens = 128, .alone = 1});
  CHECK(s.share.IsWorthwhile(*s.prompts[0]));
}

TEST_CASE("streaming prompts have an idle worker's step once enough of their tokens wait") {
  Share s;
  s.Add(1, /*streams=*/true);
  CHECK_FALSE(s.share.AreWorthAStep(s.queue));
  s.Add(4, /*streams=*/false);  // closed prompts do not count
  CHECK_FALSE(s.share.AreWorthAStep(s.queue));
  s.Add(1, /*streams=*/true);
  CHECK(s.share.AreWorthAStep(s.queue));
  CHECK(s.share.TokensAlone() == kLimits.step_tokens);
}

TEST_CASE("a closed prompt waits for at most one share of streaming prompts") {
  Share s;
  s.Plan({&s.Add(3, /*streams=*/true)}, 48);
  s.Add(1, /*streams=*/false);  // the running step counts
  CHECK(s.share.TokensBeside(s.queue) == kLimits.step_tokens - 48);
  s.share.OnStepOver();
  s.Plan({&s.Add(5, /*streams=*/true)}, 80);
  CHECK(s.share.TokensBeside(s.queue) == 0);
}

TEST_CASE("a closed prompt that waits for blocks has not waited for streaming prompts") {
  Share s;
  s.Add(1, /*streams=*/false);
  s.Plan({&s.Add(8, /*streams=*/true)}, 128, /*alone=*/true);
  CHECK(s.share.TokensBeside(s.queue) == 0);
  s.share.OnStepOver();
  s.Plan({&s.Add(2, /*streams=*/true)}, 32, /*alone=*/true);
  CHECK(s.share.TokensBeside(s.queue) == kLimits.step_tokens - 32);
}

TEST_CASE("a step of streaming prompts holds up a new closed one, unless it completes one") {
  Share s;
  ScheduledPrompt& streaming = s.Add(4, /*streams=*/true);
  s.Plan({&streaming}, 64);
  CHECK_FALSE(s.share.StepHoldsUp());
  s.Add(1, /*streams=*/true);
  CHECK_FALSE(s.share.StepHoldsUp());
  s.Add(1, /*streams=*/false);
  CHECK(s.share.StepHoldsUp());
  streaming.task.open = false;  // its last tokens are in the step
  s.share.OnExtended(streaming, /*last=*/true);
  CHECK_FALSE(s.share.StepHoldsUp());
}

TEST_CASE("a prompt that closes has waited for the running step's tokens of others alone") {
  Share s;
  ScheduledPrompt& closes = s.Add(3, /*streams=*/true);
  closes.planned = 2 * kBlockTokens;  // of the running step
  s.share.OnPlanned(s.queue, {&closes}, 112, /*alone=*/false);
  closes.task.open = false;
  s.share.OnExtended(closes, /*last=*/true);
  CHECK(s.share.TokensBeside(s.queue) == kLimits.step_tokens - (112 - 2 * kBlockTokens));
  CHECK(s.share.StepHoldsUp());  // its last tokens are not in the step
}

TEST_CASE("a step with a closed prompt in it holds up no other") {
  Share s;
  ScheduledPrompt& closed = s.Add(2, /*streams=*/false);
  s.share.OnStepOver();
  s.Plan({&s.Add(4, /*streams=*/true), &closed}, 64);
  s.Add(1, /*streams=*/false);
  CHECK_FALSE(s.share.StepHoldsUp());
}

TEST_CASE("closed prompts have waited for the part of a broken-off step that was done") {
  Share s;
  s.Plan({&s.Add(8, /*streams=*/true)}, 128);
  s.Add(1, /*streams=*/false);
  s.share.OnBrokenOff(s.queue, 0.25);
  s.share.OnStepOver();
  CHECK(s.share.TokensBeside(s.queue) == kLimits.step_tokens - 32);
  CHECK(s.share.tokens_in_step() == 0);
}

}  // namespace baton
