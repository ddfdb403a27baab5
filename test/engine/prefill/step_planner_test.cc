#include "engine/prefill/step_planner.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "engine/prefill/prompts.h"

namespace baton {
namespace {

constexpr int64_t kStepTokens = 4 * kBlockTokens;

class Planner {
 public:
  explicit Planner(int64_t blocks = 32, int64_t step_tokens = kStepTokens, StreamingLimits limits = {})
      : pool(blocks), share(limits), planner({tree, queue, admission, staging, share, progress}, step_tokens) {}

  // Queues a prompt of `blocks` blocks. Prompts with different `first` tokens share no block.
  PrefillPrompt& Add(const std::string& id, TokenId first, int64_t blocks, bool streams = false) {
    auto prompt = MakePrompt(id, first, blocks);
    prompt->arrival = ++arrivals_;
    prompt->streaming = streams;
    prompt->progress_reported = !streams;
    queue.Insert(prompt.get());
    return *(prompts[id] = std::move(prompt));
  }
  PrefillPrompt& AddLowPriority(const std::string& id, TokenId first, int64_t blocks) {
    PrefillPrompt& prompt = Add(id, first, blocks);
    queue.Erase(&prompt);
    prompt.spec.priority = kLowPriority;
    queue.Insert(&prompt);
    return prompt;
  }
  // Removes the prompt as PrefillScheduler::Remove does.
  void Remove(PrefillPrompt& prompt) {
    prompt.stopped = true;
    queue.Erase(&prompt);
    const RequestId id = prompt.id;
    planner.Retain(std::move(prompts.extract(id).mapped()));
  }
  // Plans a step. Returns the ids of its prompts, each with the tokens that the step computes.
  std::string Plan() {
    batch = &planner.PlanStep();
    std::string step;
    planner.ForEachInStep(
        [&](const RequestId& id, int64_t tokens) { absl::StrAppend(&step, step.empty() ? "" : " ", id, " ", tokens); });
    return step;
  }
  // Returns the progress since the last call.
  std::string Progress() {
    std::string taken;
    for (const PrefillProgress& part : progress.Take()) {
      absl::StrAppend(&taken, taken.empty() ? "" : " ", part.request_id, " [", part.begin, ", ", part.end, ")");
    }
    return taken;
  }
  RadixTree::State StateOf(const PrefillPrompt& prompt, size_t block) const { return tree.Find(prompt.keys[block]); }

  BlockPool pool;
  RadixTree tree{pool};
  KvLeases leases{pool, tree, 0};
  PrefillPrompts prompts;
  PromptQueue queue;
  PrefillAdmission admission{pool, tree, prompts, queue, leases};
  StagingClient staging{tree, {.host = 8, .disk = 0}, 8};
  StreamingShare share;
  ProgressLog progress;
  StepPlanner planner;  // after all that its destructor uses
  const Batch* batch = nullptr;

 private:
  uint64_t arrivals_ = 0;
};

}  // namespace

TEST_CASE("StepPlan charges a tenant for computed tokens, except for low-priority jobs") {
  StepPlan step(64);
  step.yielding_tokens = 48;
  const auto closed = MakePrompt("a", 1, 4), low_priority = MakePrompt("b", 2, 4);
  closed->spec.tenant = low_priority->spec.tenant = "t";
  low_priority->spec.priority = kLowPriority;
  CHECK(step.TokensFor(*closed) == 64);
  CHECK(step.TokensFor(*low_priority) == 48);
  step.Take(*low_priority, 16);
  CHECK(step.tokens == 48);
  CHECK(step.yielding_tokens == 32);
  CHECK(step.spent.empty());
  step.Take(*closed, 32);
  CHECK(step.TokensFor(*closed) == 16);
  CHECK(step.TokensFor(*low_priority) == 16);
  CHECK(step.spent["t"] == 32);
}

TEST_CASE("StepPlanner gives a prompt a chunk of the step's tokens when it needs more") {
  Planner p;
  PrefillPrompt& prompt = p.Add("a", 1, 6);
  CHECK(p.Plan() == "a 64");
  REQUIRE(p.batch->slices.size() == 1);
  CHECK(p.batch->slices[0].start == 0);
  CHECK(p.batch->slices[0].tokens.size() == 64);
  CHECK(p.batch->slices[0].blocks.size() == 4);
  CHECK(p.StateOf(prompt, 3) == RadixTree::State::kPromised);
  CHECK(p.StateOf(prompt, 4) == RadixTree::State::kAbsent);
  CHECK(p.planner.FinishStep(true).empty());
  CHECK(p.StateOf(prompt, 3) == RadixTree::State::kReady);
  CHECK(p.Progress() == "a [0, 64)");
  CHECK(prompt.plan == 1);
  CHECK(p.Plan() == "a 32");
  CHECK(prompt.plan == 2);
  CHECK(p.batch->slices[0].start == 64);
  CHECK(p.queue.empty());  // the prompt is planned to its end
  p.planner.FinishStep(true);
  CHECK(p.Progress() == "a [64, 96)");
  CHECK_FALSE(p.planner.running());
}

TEST_CASE("StepPlanner computes whole blocks, except when a prompt ends") {
  Planner p(/*blocks=*/32, /*step_tokens=*/40);
  PrefillPrompt& tail = p.Add("a", 1, 2);
  std::vector<TokenId> tokens(37, 1);
  tail.spec.tokens = tokens;
  tail.kv_tokens = tail.wanted = 37;
  PrefillPrompt& whole = p.Add("b", 2, 3);
  CHECK(p.Plan() == "a 37");  // the 3 tokens left are less than a block
  CHECK(tail.table.size() == 3);
  p.planner.FinishStep(true);
  CHECK(p.tree.size() == 2);  // the tail's partial block is private
  CHECK(p.Plan() == "b 32");
  p.planner.FinishStep(true);
  CHECK(p.Plan() == "b 16");
  CHECK(whole.planned == 48);
}

TEST_CASE("StepPlanner takes up a promised block instead of computing it") {
  Planner p;
  PrefillPrompt& first = p.Add("a", 1, 2);
  PrefillPrompt& longer = p.Add("b", 1, 3);
  PrefillPrompt& same = p.Add("c", 1, 2);
  CHECK(p.Plan() == "a 32 b 16 c 0");
  CHECK(p.batch->slices.size() == 2);
  CHECK(longer.counters.shared == 32);
  CHECK(longer.counters.computed == 16);
  CHECK(longer.table.ids()[1] == first.table.ids()[1]);
  CHECK(p.pool.counts().referenced == 3);
  p.planner.FinishStep(true);
  CHECK(same.done == 32);
  CHECK(p.StateOf(longer, 2) == RadixTree::State::kReady);
}

TEST_CASE("StepPlanner reports a cached prompt as done without a step") {
  Planner p;
  PrefillPrompt& prompt = p.Add("a", 1, 3);
  Cache(p.tree, prompt);
  CHECK(p.Plan().empty());
  CHECK_FALSE(p.planner.running());
  CHECK(p.Progress() == "a [0, 48)");
  CHECK(p.queue.empty());
}

TEST_CASE("StepPlanner does not mark blocks as used when a low-priority job takes them up") {
  for (const bool low_priority : {false, true}) {
    Planner p(/*blocks=*/2);
    const auto older = MakePrompt("x", 1, 1), newer = MakePrompt("y", 2, 1);
    Cache(p.tree, *older);
    Cache(p.tree, *newer);
    PrefillPrompt& prompt = low_priority ? p.AddLowPriority("a", 1, 1) : p.Add("a", 1, 1);
    CHECK(p.Plan().empty());
    REQUIRE(prompt.done == kBlockTokens);
    p.Remove(prompt);
    const BlockRef block = *p.tree.Allocate();  // evicts the block that was used least recently
    CHECK(p.tree.ReadyPrefix(older->keys) == (low_priority ? 0 : 1));
  }
}

TEST_CASE("StepPlanner copies staged blocks back instead of computing them") {
  Planner p(/*blocks=*/4);
  PrefillPrompt& prompt = p.Add("a", 1, 3);
  {
    const auto staged = MakePrompt("x", 1, 2);
    Cache(p.tree, *staged);
    std::vector<BlockRef> all;
    for (int i = 0; i < 4; ++i) all.push_back(p.staging.Allocate());
    p.staging.staging().EndStep(true);
  }
  CHECK(p.Plan() == "a 16");
  CHECK(prompt.counters.from_host == 32);
  CHECK(p.staging.staging().copies().in.size() == 2);
  CHECK(p.StateOf(prompt, 0) == RadixTree::State::kPromised);
  p.planner.FinishStep(true);
  CHECK(p.StateOf(prompt, 0) == RadixTree::State::kReady);
  CHECK(p.Progress() == "a [0, 48)");
  CHECK(p.staging.staging().counts().held == 0);
}

TEST_CASE("StepPlanner breaks promises in reverse order when a step fails") {
  Planner p;
  p.Add("a", 1, 2);
  PrefillPrompt& longer = p.Add("b", 1, 4);
  CHECK(p.Plan() == "a 32 b 32");
  // A promise with promises below it cannot be broken (RadixTree::Break).
  CHECK(p.planner.FinishStep(false) == std::vector<RequestId>{"b", "a"});
  CHECK(p.tree.size() == 0);
  CHECK(p.pool.counts().free == 28);  // a push may still read the others
  for (const auto& [id, prompt] : p.prompts) prompt->failed_blocks.clear();
  CHECK(p.pool.counts().free == 32);
  CHECK(longer.planned == 0);
  CHECK(longer.counters.shared == 0);
  CHECK(longer.counters.computed == 0);
  CHECK(p.Progress().empty());
}

TEST_CASE("StepPlanner stops the prompts that a failed step computed, and queues the others") {
  Planner p;
  PrefillPrompt& computed = p.Add("a", 1, 2);
  PrefillPrompt& shared = p.Add("b", 1, 2);
  CHECK(p.Plan() == "a 32 b 0");
  CHECK(p.queue.empty());
  CHECK(p.planner.FinishStep(false) == std::vector<RequestId>{"a"});
  CHECK(computed.stopped);
  CHECK_FALSE(shared.stopped);
  CHECK(p.Plan() == "b 32");
  CHECK(p.planner.FinishStep(true).empty());
  CHECK(p.Progress() == "b [0, 32)");
}

TEST_CASE("StepPlanner keeps the KV of earlier steps when a step fails") {
  Planner p;
  PrefillPrompt& prompt = p.Add("a", 1, 10);
  p.Plan();
  p.planner.FinishStep(true);
  CHECK(p.Plan() == "a 64");
  CHECK(p.queue.contains(&prompt));
  p.staging.Protect(prompt);  // as PrefillScheduler::Extend does
  p.planner.FinishStep(false);
  CHECK(prompt.planned == 64);
  CHECK(prompt.table.size() == 4);
  CHECK(prompt.counters.computed == 64);
  CHECK(p.tree.size() == 4);
  CHECK(p.queue.empty());
  CHECK_FALSE(prompt.protection.has_value());
}

TEST_CASE("StepPlanner leaves removed prompts' blocks until the step ends") {
  Planner p;
  const auto keys = p.Add("a", 1, 2).keys;
  CHECK(p.Plan() == "a 32");
  p.Remove(*p.prompts.at("a"));
  CHECK(p.pool.counts().referenced == 2);
  p.planner.CheckInvariants();
  PrefillPrompt& again = p.Add("b", 1, 2);
  CHECK(p.planner.FinishStep(true).empty());
  p.planner.CheckInvariants();
  CHECK(p.tree.ReadyPrefix(keys) == 2);
  CHECK(p.pool.counts().referenced == 0);
  CHECK(p.Progress().empty());
  CHECK(p.Plan().empty());
  CHECK(again.done == 32);
  p.Remove(again);  // no step uses its blocks
  CHECK(p.pool.counts().referenced == 0);
}

TEST_CASE("StepPlanner keeps replaced tokens until the step ends") {
  Planner p;
  PrefillPrompt& prompt = p.Add("a", 1, 2);
  CHECK(p.Plan() == "a 32");
  const std::vector<TokenId> read(32, 1);
  p.planner.Retain(std::exchange(prompt.spec.tokens, {}));
  const std::vector<TokenId> other(32, 9);  // in the memory of the old tokens if they are gone
  CHECK(std::ranges::equal(p.batch->slices[0].tokens, read));
  p.planner.FinishStep(true);
}

TEST_CASE("StepPlanner lists a prompt's last chunk when it completes the prompt") {
  Planner p;
  PrefillPrompt& prompt = p.Add("a", 1, 6);
  p.Plan();
  CHECK(p.planner.LastSlices().empty());
  p.planner.FinishStep(true);
  p.Add("b", 1, 6);
  p.Add("s", 2, 2, /*streams=*/true);  // no progress of a streaming prompt is reported
  CHECK(p.Plan() == "a 32 b 0");
  const std::vector<PrefillProgress> slices = p.planner.LastSlices();
  REQUIRE(slices.size() == 1);
  CHECK(slices[0].request_id == "a");
  CHECK(slices[0].begin == 64);
  CHECK(slices[0].end == 96);
  prompt.stopped = true;
  CHECK(p.planner.LastSlices().empty());
}

TEST_CASE("StepPlanner admits prompts while the pool has room for them beside each other") {
  Planner p(/*blocks=*/4);
  p.Add("a", 1, 2);
  p.Add("b", 2, 2);
  CHECK(p.Plan() == "a 32 b 32");
}

TEST_CASE("StepPlanner admits no later closed prompt when one finds no room") {
  Planner p(/*blocks=*/5, /*step_tokens=*/32, {.increment = 16, .step_tokens = 32});
  p.Add("a", 1, 3);
  CHECK(p.Plan() == "a 32");
  p.planner.FinishStep(true);
  const PrefillPrompt& waits = p.Add("b", 2, 3);
  const PrefillPrompt& later = p.Add("c", 3, 1);  // fits alone
  p.Add("s", 4, 1, /*streams=*/true);
  CHECK(p.Plan() == "a 16 s 16");
  CHECK_FALSE(waits.admitted);
  CHECK_FALSE(later.admitted);
}

TEST_CASE("StepPlanner queues a streaming prompt again when a closed one takes its blocks") {
  Planner p(/*blocks=*/4, kStepTokens, {.increment = 16, .step_tokens = 64});
  PrefillPrompt& streams = p.Add("s", 1, 3, /*streams=*/true);
  CHECK(p.Plan() == "s 48");
  p.planner.FinishStep(true);
  CHECK(p.queue.empty());
  p.Add("c", 2, 2);
  CHECK(p.Plan() == "c 32");
  CHECK(p.queue.contains(&streams));
  CHECK(streams.done == 0);
  CHECK(streams.table.size() == 0);
  CHECK_FALSE(streams.admitted);
  CHECK(streams.counters.computed == 0);
}

TEST_CASE("StepPlanner reports a low-priority job anew when another prompt takes its blocks") {
  Planner p(/*blocks=*/4);
  PrefillPrompt& job = p.AddLowPriority("j", 1, 3);
  CHECK(p.Plan() == "j 48");
  p.planner.FinishStep(true);
  CHECK(p.Progress() == "j [0, 48)");
  p.Add("c", 2, 2);
  CHECK(p.Plan() == "c 32");
  CHECK(p.queue.contains(&job));
  CHECK_FALSE(job.progress_reported);
}

TEST_CASE("StepPlanner protects a closed prompt's cached blocks when it takes them back") {
  Planner p(/*blocks=*/4, kStepTokens, {.increment = 16, .step_tokens = 64});
  PrefillPrompt& prompt = p.Add("s", 1, 3, /*streams=*/true);
  CHECK(p.Plan() == "s 48");
  p.planner.FinishStep(true);
  prompt.streaming = false;  // closes, and its progress is not reported yet
  p.Add("c", 2, 2);
  CHECK(p.Plan() == "c 32");
  CHECK(p.queue.contains(&prompt));
  CHECK(prompt.protection.has_value());
}

TEST_CASE("StepPlanner counts the tokens of prompts that yield while their step runs") {
  Planner p(/*blocks=*/32, kStepTokens, {.increment = 16, .step_tokens = 32});
  p.Add("a", 1, 1);
  p.Add("s", 2, 3, /*streams=*/true);
  CHECK(p.Plan() == "a 16 s 32");
  CHECK(p.planner.yielding_tokens() == 32);
  p.planner.FinishStep(true);
  CHECK(p.planner.yielding_tokens() == 0);
}

TEST_CASE("StepPlanner plans prompts that yield alone when no other prompt runs") {
  Planner p(/*blocks=*/32, kStepTokens, {.increment = 64, .step_tokens = 64, .alone = 16});
  p.Add("s", 2, 1, /*streams=*/true);
  CHECK(p.Plan() == "s 16");
}

TEST_CASE("StepPlanner breaks the promises of a running step when it is destroyed") {
  Planner p;
  {
    StepPlanner planner({p.tree, p.queue, p.admission, p.staging, p.share, p.progress}, kStepTokens);
    p.Add("a", 1, 2);
    planner.PlanStep();
    CHECK(p.tree.size() == 2);
  }
  CHECK(p.tree.size() == 0);
}

}  // namespace baton
