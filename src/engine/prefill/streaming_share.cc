#include "engine/prefill/streaming_share.h"

#include "base/check.h"

namespace baton {

void StreamingShare::Limit(OpenPromptLimits limits) {
  BATON_CHECK(limits.step_tokens >= kBlockTokens, "streaming prompts may compute at least one block per step");
  limits_ = limits;
}

bool StreamingShare::AreWorthAStep(const PromptQueue& queue) const {
  int64_t tokens = 0;
  for (const PrefillPrompt* prompt : queue) {
    if (prompt->open) tokens += prompt->wanted - prompt->planned;
  }
  return tokens >= limits_.alone;
}

}  // namespace baton
