#include "model/thinking.h"

#include <algorithm>

#include "text/partial_tag.h"

namespace baton {

std::string PromptEnd(const Tokenizer& tokenizer, std::span<const TokenId> prompt) {
  constexpr size_t kMostTokens = 16;
  std::string bytes;
  for (const TokenId id : prompt.last(std::min(prompt.size(), kMostTokens))) bytes += tokenizer.TokenBytes(id);
  return bytes;
}

Thinking ThinkingOf(const ServedModel& model, bool tools, std::string_view prompt_end) {
  const ChatTemplate* const chat_template = model.TemplateFor(tools);
  const std::string_view source = chat_template == nullptr ? "" : chat_template->source();
  if (source.find(kThinkBegin) == std::string_view::npos || source.find(kThinkEnd) == std::string_view::npos) {
    return Thinking::kNone;
  }
  prompt_end = prompt_end.substr(0, prompt_end.find_last_not_of(kSpace) + 1);
  if (prompt_end.ends_with(kThinkEnd)) return Thinking::kNone;
  return prompt_end.ends_with(kThinkBegin) ? Thinking::kBegun : Thinking::kMay;
}

Thinking ThinkingAfter(const ServedModel& model, std::span<const TokenId> prompt) {
  const std::string end = PromptEnd(*model.tokenizer, prompt);
  const Thinking without_tools = ThinkingOf(model, false, end);
  return without_tools == Thinking::kNone ? ThinkingOf(model, true, end) : without_tools;
}

}  // namespace baton
