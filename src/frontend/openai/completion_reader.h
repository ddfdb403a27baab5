// Reads a body of /v1/completions.
#pragma once

#include "absl/status/statusor.h"
#include "base/json/json_body.h"
#include "frontend/openai/completion_call.h"

namespace baton {

// A field that is not supported is refused, except for those that the table of fields accepts
// without effect. A null field counts as absent. max_tokens is 16 by default, as in OpenAI's API,
// or what the prompt leaves of the context length if that is less. Returns INVALID_ARGUMENT, with
// the field, the expected and the found value. Returns NOT_FOUND if the model is not served.
// ReadRequest, and not this function, checks values that depend on one field only.
absl::StatusOr<CompletionCall> ReadCompletion(const Json& body, const ServedModels& models);

}  // namespace baton
