#include "model/thinking.h"

#include "catch.h"
#include "frontend/openai/openai_model.h"

namespace baton {
namespace {

TEST_CASE("Template and prompt determine whether the model may think") {
  const ServedModel& think = **TestModels().Find("think");
  CHECK(ThinkingOf(think, false, "<|im_start|>assistant\n") == Thinking::kMay);
  CHECK(ThinkingOf(think, false, "<|im_start|>assistant\n<think>\n") == Thinking::kBegun);
  CHECK(ThinkingOf(think, false, "<think>\n\n</think>\n\n") == Thinking::kNone);
  CHECK(ThinkingOf(think, false, "") == Thinking::kMay);
  CHECK(ThinkingOf(think, true, "") == Thinking::kMay);
  CHECK(ThinkingOf(**TestModels().Find("qwen"), false, "<think>") == Thinking::kNone);
  ServedModel none = think;
  none.chat_template = nullptr;
  CHECK(ThinkingOf(none, false, "<think>") == Thinking::kNone);
}

}  // namespace
}  // namespace baton
