// The formats in which models write tool calls.
#pragma once

#include "absl/status/statusor.h"
#include "model/served_model.h"

namespace baton {

enum class ToolFormat {
  kNone,  // the parser looks for no calls
  // Qwen and Hermes: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, several of them,
  // after any text.
  kHermes,
  // Llama 3.1 and later: {"name": ..., "parameters": {...}} alone, or after <|python_tag|>.
  kLlama,
};

// Derives the format from the text of the chat template, which shows the model the format. For a
// template without tools it is kHermes, in which AdaptChat shows the tools. Returns
// INVALID_ARGUMENT if the template uses another format, or if there is none.
absl::StatusOr<ToolFormat> ToolFormatOf(const ServedModel& model);

// Drops the template `tool_use` of a model if it shows calls in a format that is not in this list.
// Chats with tools then use the default template. Logs a warning.
void DropUnknownToolTemplate(ServedModel& model);

}  // namespace baton
