#include "engine/prefill/streaming_share.h"

#include <memory>
#include <string>
#include <vector>

#include "catch.h"
#include "engine/prefill/prompts.h"

namespace baton {
namespace {

struct Share {
  PrefillPrompt& Add(const std::string& id, int64_t blocks, bool streams) {
    auto prompt = MakePrompt(id, static_cast<TokenId>(prompts.size() + 1), blocks);
    prompt->streaming = streams;
    queue.Insert(prompt.get());
    prompts.push_back(std::move(prompt));
    return *prompts.back();
  }

  // Returns the ids of the prompts that take part in a step. `idle`: no prompt took part before.
  std::string InStep(bool idle = false, int64_t yielding_left = 128) {
    StepPlan step(512);
    share.BeginStep(step);
    CHECK(step.yielding_tokens == 128);
    step.yielding_tokens = yielding_left;
    if (idle) share.BeginIdleStep(step, queue);
    std::string ids;
    for (const auto& prompt : prompts) {
      if (share.TakesPart(*prompt, step)) ids += prompt->id;
    }
    return ids;
  }

  StreamingShare share{{.increment = 64, .step_tokens = 128, .alone = 32}};
  PromptQueue queue;
  std::vector<std::unique_ptr<PrefillPrompt>> prompts;
};

}  // namespace

TEST_CASE("StreamingShare lets a streaming prompt join others when an increment of it waits") {
  Share s;
  s.Add("a", 3, /*streams=*/true);
  s.Add("b", 4, /*streams=*/true);
  s.Add("c", 1, /*streams=*/false);
  CHECK(s.InStep() == "bc");
  s.share.Limit({.increment = 16, .step_tokens = 128, .alone = 1});
  CHECK(s.InStep() == "abc");
}

TEST_CASE("StreamingShare leaves out prompts that yield when their share is spent") {
  Share s;
  s.Add("a", 4, /*streams=*/true);
  s.Add("b", 1, /*streams=*/false).spec.priority = kLowPriority;
  s.Add("c", 1, /*streams=*/false);
  CHECK(s.InStep(/*idle=*/false, /*yielding_left=*/16) == "abc");
  CHECK(s.InStep(/*idle=*/false, /*yielding_left=*/15) == "c");
  CHECK(s.InStep(/*idle=*/true, /*yielding_left=*/15).empty());
}

TEST_CASE("StreamingShare gives streaming prompts an idle step when enough tokens wait") {
  Share s;
  s.Add("a", 1, /*streams=*/true);
  s.Add("b", 1, /*streams=*/false).spec.priority = kLowPriority;
  CHECK(s.InStep(/*idle=*/true) == "b");
  s.Add("c", 4, /*streams=*/false);  // closed prompts do not count
  CHECK(s.InStep(/*idle=*/true) == "b");
  s.Add("d", 1, /*streams=*/true);
  CHECK(s.InStep(/*idle=*/true) == "abd");
}

}  // namespace baton
