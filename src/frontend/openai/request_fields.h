// The requests of one call.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "frontend/openai/completion_call.h"
#include "inference.pb.h"

namespace baton {

// Makes call.requests from the fields that they share and from the prompts. REQUIRES: there is a prompt.
// INVALID_ARGUMENT: more choices than a call may have.
absl::Status MakeRequests(const v1::GenerateRequest& common, std::vector<v1::Segments> prompts, CompletionCall& call);

}  // namespace baton
