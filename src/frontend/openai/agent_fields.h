// Readers of segments and references. These are Baton's fields in OpenAI's bodies.
#pragma once

#include <string_view>

#include "frontend/openai/field_reader.h"
#include "inference.pb.h"

namespace baton {

// Reads the field "output_of" of `owner`: a request id, or an object with the fields of
// baton.v1.OutputOf.
void ReadOutputOf(FieldReader& owner, v1::OutputOf& out);

// Reads "segments": a list of {"text"}, {"token_ids"} or {"output_of"}. Token ids are below
// `vocab`.
void ReadSegmentList(FieldReader& body, int32_t vocab, v1::Segments& segments);

// Reads token ids in [0, vocab). The message of INVALID_ARGUMENT names the element.
absl::Status ReadTokenIds(const Json& list, std::string_view path, int32_t vocab, v1::TokenIds& ids);

}  // namespace baton
