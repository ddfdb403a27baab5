#include "engine/prefill/prompt_queue.h"

#include <memory>
#include <string>
#include <vector>

#include "catch.h"
#include "engine/prefill/prompts.h"

namespace baton {
namespace {

// A queue of prompts of one block each, which arrive in the order of Add.
class Queue {
 public:
  PrefillPrompt& Add(const std::string& id, const std::string& tenant = "", int32_t priority = 0) {
    auto prompt = MakePrompt(id, static_cast<TokenId>(prompts_.size() + 1), 1);
    prompt->spec.tenant = tenant;
    prompt->spec.priority = priority;
    queue.Insert(prompt.get());
    prompts_.push_back(std::move(prompt));
    return *prompts_.back();
  }
  // Takes the prompt out of the queue, calls `change` on it, and puts it back.
  template <class Body>
  void Change(PrefillPrompt& prompt, const Body& change) {
    queue.Erase(&prompt);
    change(prompt);
    queue.Insert(&prompt);
  }
  // Returns the ids in the order of the next step. The step computes `tokens` tokens of the first
  // prompt, and no others.
  std::string Step(int64_t tokens = kBlockTokens) {
    StepPlan step = Begin();
    std::string ids;
    for (const PrefillPrompt* prompt : step.order) ids += prompt->id;
    if (!step.order.empty()) {
      step.order[0]->plan = step.number;
      step.Take(*step.order[0], tokens);
      queue.Charge(step);
    }
    return ids;
  }
  StepPlan Begin() {
    StepPlan step(512);
    queue.BeginStep(step);
    return step;
  }

  PromptQueue queue;

 private:
  std::vector<std::unique_ptr<PrefillPrompt>> prompts_;
};

}  // namespace

TEST_CASE("PromptQueue orders by priority, closed prompts first, queue order and arrival") {
  Queue q;
  q.Add("a");
  q.Change(q.Add("b"), [](PrefillPrompt& p) { p.streaming = true; });
  q.Change(q.Add("c"), [](PrefillPrompt& p) { p.queue_order = absl::InfinitePast(); });
  q.Add("d", "", 1);
  q.Add("e", "", -1);
  CHECK(q.Step() == "dcabe");
}

TEST_CASE("PromptQueue puts the tenant with the least computed tokens first") {
  Queue q;
  q.Add("a", "A");
  q.Add("b", "A");
  q.Add("c", "B");
  CHECK(q.Step() == "abc");
  CHECK(q.Step(2 * kBlockTokens) == "cab");
  CHECK(q.Step(4 * kBlockTokens) == "abc");
}

TEST_CASE("Low-priority jobs come after all tenants and lose their blocks first") {
  Queue q;
  const PrefillPrompt& low_priority = q.Add("b", "", kLowPriority);
  const PrefillPrompt& urgent = q.Add("u", "", 5);
  const PrefillPrompt& later = q.Add("l");
  CHECK(q.Step() == "ulb");
  CHECK(q.queue.GivesWayBefore(low_priority, later));
  CHECK(q.queue.GivesWayBefore(later, urgent));
  CHECK_FALSE(q.queue.GivesWayBefore(urgent, later));
}

TEST_CASE("Prompts of the tenant with the most computed tokens lose their blocks first") {
  Queue q;
  const PrefillPrompt& first = q.Add("a", "A", 9);
  const PrefillPrompt& other = q.Add("b", "B");
  CHECK(q.Step(10 * kBlockTokens) == "ab");
  q.Step();
  CHECK(q.queue.GivesWayBefore(first, other));
}

TEST_CASE("PromptQueue puts the oldest prompt first from each eighth step until it runs") {
  Queue q;
  PrefillPrompt& old = q.Add("o", "", -1);
  q.Add("u");
  for (int step = 1; step < 8; ++step) CHECK(q.Step() == "uo");
  const StepPlan eighth = q.Begin();
  CHECK(eighth.order[0] == &old);
  q.queue.Charge(eighth);  // no prompt is in the step, because the first one waits for room
  CHECK(q.Step() == "ou");
  CHECK(q.Step() == "uo");
}

TEST_CASE("PromptQueue puts the oldest streaming prompt first in one of eight steps") {
  Queue q;
  q.Change(q.Add("s"), [](PrefillPrompt& p) { p.streaming = true; });
  q.Change(q.Add("t"), [](PrefillPrompt& p) {
    p.streaming = true;
    p.spec.priority = 1;
  });
  for (int step = 1; step < 8; ++step) CHECK(q.Step() == "ts");
  const StepPlan eighth = q.Begin();
  CHECK(eighth.order[0]->id == "s");
  q.queue.Charge(eighth);
  CHECK(q.Step() == "ts");
}

}  // namespace baton
