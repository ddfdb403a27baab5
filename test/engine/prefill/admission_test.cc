#include "engine/prefill/admission.h"

#include <memory>
#include <string>
#include <vector>

#include "catch.h"
#include "engine/prefill/prompts.h"

namespace baton {
namespace {

constexpr int64_t kPoolBlocks = 8;
constexpr int64_t kStepTokens = 64;

class Room {
 public:
  PrefillPrompt& Add(const std::string& id, int64_t blocks, int32_t priority = 0, bool streams = false) {
    auto prompt = MakePrompt(id, static_cast<TokenId>(prompts.size() + 1), blocks);
    prompt->spec.priority = priority;
    prompt->streaming = streams;
    prompt->progress_reported = !streams;
    queue.Insert(prompt.get());
    return *(prompts[id] = std::move(prompt));
  }
  // Admits the prompt. Returns the ids of the prompts that gave their blocks back for it, or "no".
  std::string Admit(PrefillPrompt& prompt) {
    StepPlan step(kStepTokens);
    admission.BeginStep(step);
    std::string gave;
    const bool admitted = admission.Admit(prompt, step, [&](PrefillPrompt& victim) {
      gave += victim.id;
      victim.table.Truncate(0);
      victim.planned = victim.done = 0;
      victim.admitted = false;
    });
    if (admitted) CHECK(step.reserved == admission.Reserved());
    spent = step.spent[prompt.spec.tenant];
    return admitted ? gave : "no";
  }
  // Gives an admitted prompt KV for its first blocks, as earlier steps do.
  void Compute(PrefillPrompt& prompt, int64_t blocks) {
    for (int64_t i = 0; i < blocks; ++i) prompt.table.Append(*tree.Allocate());
    prompt.planned = prompt.done = blocks * kBlockTokens;
  }

  BlockPool pool{kPoolBlocks};
  RadixTree tree{pool};
  KvLeases leases{pool, tree, kPoolBlocks};
  PrefillPrompts prompts;
  PromptQueue queue;
  PrefillAdmission admission{pool, tree, prompts, queue, leases};
  int64_t spent = 0;  // tokens that the latest Admit charges
};

}  // namespace

TEST_CASE("PrefillAdmission admits prompts while the pool has all blocks that they may need") {
  Room r;
  CHECK(r.Admit(r.Add("a", 5)).empty());
  CHECK(r.admission.Reserved() == 5);
  CHECK(r.Admit(r.Add("b", 4)) == "no");
  CHECK(r.Admit(r.Add("c", 3)).empty());
  CHECK(r.admission.Unpromised() == 0);
}

TEST_CASE("PrefillAdmission names tokens, blocks and the flag when a prompt never fits") {
  Room r;
  CHECK(r.admission.CheckFits(kPoolBlocks * kBlockTokens).ok());
  CHECK(r.admission.CheckFits(kPoolBlocks * kBlockTokens + 1) ==
        absl::InvalidArgumentError(
            "the prompt can never fit: its KV of 129 tokens needs 9 blocks, this prefill worker has 8 (128 tokens); "
            "shorten the prompt, or raise --kv-memory-mb of the prefill workers"));
}

TEST_CASE("PrefillAdmission takes low-priority or streaming blocks for a closed prompt") {
  for (const bool streams : {true, false}) {
    Room r;
    for (const char* id : {"x", "y"}) {
      PrefillPrompt& prompt = r.Add(id, 3, streams ? 0 : kLowPriority, streams);
      REQUIRE(r.Admit(prompt).empty());
      r.Compute(prompt, 2);
    }
    CHECK(r.Admit(r.Add("closed", 5)) == "y");  // "y" arrived later than "x"
  }
}

TEST_CASE("PrefillAdmission takes low-priority blocks for a streaming prompt if enough") {
  Room r;
  PrefillPrompt& other = r.Add("s", 4, 0, /*streams=*/true);
  PrefillPrompt& low_priority = r.Add("b", 2, kLowPriority);
  REQUIRE(r.Admit(other).empty());
  REQUIRE(r.Admit(low_priority).empty());
  r.Compute(low_priority, 2);
  CHECK(r.Admit(r.Add("t", 5, 0, /*streams=*/true)) == "no");
  CHECK(low_priority.table.size() == 2);
  CHECK(r.Admit(r.Add("u", 4, 0, /*streams=*/true)) == "b");
}

TEST_CASE("PrefillAdmission takes no blocks for a low-priority job and none from a step") {
  Room r;
  PrefillPrompt& first = r.Add("a", 6, kLowPriority);
  REQUIRE(r.Admit(first).empty());
  CHECK(r.Admit(r.Add("b", 3, kLowPriority)) == "no");
  r.Compute(first, 6);
  first.planned = first.wanted + kBlockTokens;  // the prompt is in the planned step
  CHECK(r.Admit(r.Add("c", 3)) == "no");
}

TEST_CASE("PrefillAdmission ends no lease when the end of all would not make room") {
  Room r;
  REQUIRE(r.Admit(r.Add("a", 4)).empty());
  const auto leased = MakePrompt("l", 90, 3);
  Cache(r.tree, *leased);
  r.leases.Ask(LeaseHolder(1), leased->keys, absl::UnixEpoch() + absl::Seconds(1));
  r.leases.Grant(kPoolBlocks);
  REQUIRE(r.leases.blocks() == 3);
  CHECK(r.Admit(r.Add("c", 5)) == "no");
  CHECK(r.leases.blocks() == 3);
}

TEST_CASE("PrefillAdmission takes blocks of a closed prompt until its progress is reported") {
  Room r;
  PrefillPrompt& closed = r.Add("a", 6);
  REQUIRE(r.Admit(closed).empty());
  r.Compute(closed, 2);
  CHECK(r.Admit(r.Add("b", 3)) == "no");
  closed.progress_reported = false;
  CHECK(r.Admit(r.Add("c", 3)) == "a");
}

TEST_CASE("PrefillAdmission ends the leases that expire first for a closed prompt") {
  Room r;
  const auto leased = MakePrompt("l", 90, 3), later = MakePrompt("m", 91, 3);
  Cache(r.tree, *leased);
  Cache(r.tree, *later);
  r.leases.Ask(LeaseHolder(1), leased->keys, absl::UnixEpoch() + absl::Seconds(1));
  r.leases.Ask(LeaseHolder(1), later->keys, absl::UnixEpoch() + absl::Seconds(2));
  r.leases.Grant(kPoolBlocks);
  REQUIRE(r.leases.blocks() == 6);
  CHECK(r.Admit(r.Add("s", 5, 0, /*streams=*/true)) == "no");
  CHECK(r.leases.blocks() == 6);
  CHECK(r.Admit(r.Add("c", 5)).empty());
  CHECK(r.leases.blocks() == 3);
  CHECK(r.leases.NextTick() == absl::UnixEpoch() + absl::Seconds(2));
}

TEST_CASE("PrefillAdmission needs no free block when the cache has the block") {
  Room r;
  PrefillPrompt& again = r.Add("a", 6);
  Cache(r.tree, again);
  std::vector<BlockRef> held;  // as by another prompt with the same blocks
  for (const BlockKey& key : again.keys) held.push_back(r.tree.Acquire(key));
  CHECK(r.Admit(r.Add("b", 2)).empty());
  StepPlan step(kStepTokens);
  r.admission.BeginStep(step);
  REQUIRE(step.reserved == 2);
  CHECK(r.admission.Admit(again, step, [](PrefillPrompt&) {}));
  CHECK(step.reserved == 2);
}

TEST_CASE("PrefillAdmission charges one block when it admits a prompt that does not yield") {
  Room r;
  CHECK(r.Admit(r.Add("a", 2)).empty());
  CHECK(r.spent == kBlockTokens);
  CHECK(r.Admit(r.Add("s", 2, 0, /*streams=*/true)).empty());
  CHECK(r.spent == 0);
  CHECK(r.Admit(r.Add("b", 2, kLowPriority)).empty());
  CHECK(r.spent == 0);
  CHECK(r.Admit(r.Add("c", 8)) == "no");
  CHECK(r.spent == 0);
}

}  // namespace baton
