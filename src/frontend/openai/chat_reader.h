// Reads a body of /v1/chat/completions.
#pragma once

#include "absl/status/statusor.h"
#include "base/json/json_body.h"
#include "frontend/openai/completion_call.h"

namespace baton {

// Errors are those of ReadCompletion. Also returns INVALID_ARGUMENT if the chat has tools and the
// model's format of tool calls is unknown.
absl::StatusOr<CompletionCall> ReadChat(const Json& body, const ServedModels& models);

}  // namespace baton
