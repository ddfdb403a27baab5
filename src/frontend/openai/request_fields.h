// Fields that completions and chats have in common.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/openai/completion_call.h"
#include "frontend/openai/field_reader.h"
#include "inference.pb.h"

namespace baton {

// "model"; NOT_FOUND: it is not served.
absl::StatusOr<const ServedModel*> ReadModel(FieldReader& body, const ServedModels& models);

// All that completions and chats have in common: the model, how and how often it is sampled and answered, what agents
// need, and fields that change nothing here. Without max_tokens and logprobs, which the two have in different fields.
// Ranges are not looked at: baton.v1.Sampling's are checked for all clients alike, in ReadRequest.
absl::StatusOr<v1::GenerateRequest> ReadCommon(FieldReader& body, const ServedModels& models, CompletionCall& call);

// Makes call.requests of what they have in common and the prompts, of which there is at least one. INVALID_ARGUMENT:
// more choices than a call may have.
absl::Status MakeRequests(const v1::GenerateRequest& common, std::vector<v1::Segments> prompts, CompletionCall& call);

}  // namespace baton
