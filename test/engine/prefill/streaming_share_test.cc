#include "engine/prefill/streaming_share.h"

#include <memory>
#include <vector>

#include "catch.h"
#include "engine/prefill/prompts.h"

namespace baton {
namespace {

struct Share {
  PrefillPrompt& Add(int64_t blocks, bool streams) {
    auto prompt = MakePrompt("p", static_cast<TokenId>(prompts.size() + 1), blocks);
    prompt->open = streams;
    queue.Insert(prompt.get());
    prompts.push_back(std::move(prompt));
    return *prompts.back();
  }

  StreamingShare share{{.increment = 64, .step_tokens = 128, .alone = 32}};
  PromptQueue queue;
  std::vector<std::unique_ptr<PrefillPrompt>> prompts;
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
}

}  // namespace baton
