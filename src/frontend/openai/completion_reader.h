// What a client posts to /v1/completions.
#pragma once

#include "absl/status/statusor.h"
#include "base/json/json_body.h"
#include "frontend/openai/completion_call.h"

namespace baton {

// INVALID_ARGUMENT names the field, what was expected and what was found: a field that is not supported is refused,
// never ignored, and null is as good as none. NOT_FOUND: the model is not served. Values that depend on no more than
// the field itself are left to ReadRequest. max_tokens is 16 unless set, as OpenAI has it.
absl::StatusOr<CompletionCall> ReadCompletion(const Json& body, const ServedModels& models);

}  // namespace baton
