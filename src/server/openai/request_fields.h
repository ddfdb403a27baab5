// Fields that completions and chats have in common.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "inference.pb.h"
#include "server/openai/completion_call.h"
#include "server/openai/field_reader.h"

namespace baton {

// Ranges are not looked at here: baton.v1.Sampling's are checked for all clients alike, in ReadRequest.
// Without max_tokens and logprobs, which the two kinds of call have in different fields.
void ReadSampling(FieldReader& body, v1::Sampling& sampling);

// "model"; NOT_FOUND: it is not served.
absl::StatusOr<const ServedModel*> ReadModel(FieldReader& body, const ServedModels& models);

// n, stream, stream_options, timeout_ms.
void ReadAnswerFields(FieldReader& body, CompletionCall& call);

// Fields of OpenAI's that change nothing here, where they are set to what Baton does anyhow; any other value is
// refused.
void ReadFixedFields(FieldReader& body, const CompletionCall& call);

// Makes call.requests of what all choices have in common and the prompts, of which there is at least one: each is
// sampled call.samples times, with seeds that differ. INVALID_ARGUMENT: more choices, or more bytes, than a call may
// have.
absl::Status MakeChoices(const v1::GenerateRequest& common, std::vector<v1::Segments> prompts, CompletionCall& call);

}  // namespace baton
