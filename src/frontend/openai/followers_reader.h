// What a client says will be asked after its chat.
#pragma once

#include "absl/status/status.h"
#include "frontend/openai/completion_call.h"
#include "frontend/openai/field_reader.h"

namespace baton {

// "followers". INVALID_ARGUMENT names element and field; NOT_FOUND: a model that is not served.
absl::Status ReadFollowers(FieldReader& body, const ServedModels& models, CompletionCall& call);

}  // namespace baton
