// What a client posts to /v1/chat/completions.
#pragma once

#include "absl/status/statusor.h"
#include "base/json/json_body.h"
#include "frontend/openai/completion_call.h"

namespace baton {

// Errors as ReadCompletion's. INVALID_ARGUMENT too: tools for a model whose format of calls is not known.
absl::StatusOr<CompletionCall> ReadChat(const Json& body, const ServedModels& models);

}  // namespace baton
