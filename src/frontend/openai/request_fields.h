// The requests of one call.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "frontend/openai/completion_call.h"
#include "inference.pb.h"

namespace baton {

// Makes call.requests of what they have in common and the prompts, of which there is at least one. INVALID_ARGUMENT:
// more choices than a call may have.
absl::Status MakeRequests(const v1::GenerateRequest& common, std::vector<v1::Segments> prompts, CompletionCall& call);

}  // namespace baton
