// Makes the requests of one call.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "frontend/openai/completion_call.h"
#include "inference.pb.h"

namespace baton {

// Makes call.requests from the shared fields and from the prompts. REQUIRES: there is a prompt.
// Returns INVALID_ARGUMENT if the call would have too many choices.
absl::Status MakeRequests(const v1::GenerateRequest& common, std::vector<v1::Segments> prompts, CompletionCall& call);

}  // namespace baton
