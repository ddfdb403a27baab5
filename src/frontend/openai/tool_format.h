// How a model writes the tool calls in its answer.
#pragma once

#include "absl/status/statusor.h"
#include "model/served_model.h"

namespace baton {

enum class ToolFormat {
  kNone,    // calls are not looked for
  kHermes,  // Qwen, Hermes: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, several of them, after any text
  kLlama,   // Llama 3.1 and later: {"name": ..., "parameters": {...}} alone, or after <|python_tag|>
};

// Told by the text of the chat template, which teaches the model the format. INVALID_ARGUMENT: the template does not
// show tools to the model, or has it write calls in another format.
absl::StatusOr<ToolFormat> ToolFormatOf(const ServedModel& model);

}  // namespace baton
