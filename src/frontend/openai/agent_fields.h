// What agents ask for beside OpenAI's fields. In the body's top level, where the client's extra_body puts it.
#pragma once

#include <string_view>

#include "frontend/openai/field_reader.h"
#include "inference.pb.h"

namespace baton {

// session_id, request_id, cache_salt, priority, workflow, agent, expected_tokens, context_id, context_length, join: as
// in baton.v1.GenerateRequest, where they are checked.
void ReadAgentFields(FieldReader& body, v1::GenerateRequest& request);

// "output_of" of `owner`: a request id, or an object with the fields of baton.v1.OutputOf.
void ReadOutputOf(FieldReader& owner, v1::OutputOf& out);

// A list of {"text"}, {"token_ids"} or {"output_of"}. `vocab`: token ids are below it.
void ReadSegments(FieldReader& body, int32_t vocab, v1::Segments& segments);

// Token ids in [0, vocab). INVALID_ARGUMENT names the element.
absl::Status ReadTokenIds(const Json& list, std::string_view path, int32_t vocab, v1::TokenIds& ids);

}  // namespace baton
