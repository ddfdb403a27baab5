// Segments and references, which agents ask for beside OpenAI's fields.
#pragma once

#include <string_view>

#include "frontend/openai/field_reader.h"
#include "inference.pb.h"

namespace baton {

// "output_of" of `owner`: a request id, or an object with the fields of baton.v1.OutputOf.
void ReadOutputOf(FieldReader& owner, v1::OutputOf& out);

// "segments": a list of {"text"}, {"token_ids"} or {"output_of"}. `vocab`: token ids are below it.
void ReadSegmentList(FieldReader& body, int32_t vocab, v1::Segments& segments);

// Token ids in [0, vocab). INVALID_ARGUMENT names the element.
absl::Status ReadTokenIds(const Json& list, std::string_view path, int32_t vocab, v1::TokenIds& ids);

}  // namespace baton
