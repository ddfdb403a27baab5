// Whether an output of a model begins with the model's thinking.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "model/served_model.h"
#include "text/reasoning_parser.h"
#include "text/tokenizer.h"

namespace baton {

// Returns the bytes of the last tokens of a prompt. They are enough to contain the longest tag.
std::string PromptEnd(const Tokenizer& tokenizer, std::span<const TokenId> prompt);

// Derived from the text of the template for a chat with or without tools, which has the tags, and
// from PromptEnd. If thinking is turned off, templates end the prompt with the closing tag.
Thinking ThinkingOf(const ServedModel& model, bool tools, std::string_view prompt_end);
// The same for any prompt. The model may think if one of its templates has the tags.
Thinking ThinkingAfter(const ServedModel& model, std::span<const TokenId> prompt);

}  // namespace baton
