// Readers of segments and references. These are Baton's fields in OpenAI's bodies.
#pragma once

#include <string_view>

#include "frontend/openai/field_reader.h"
#include "inference.pb.h"
#include "model/served_model.h"

namespace baton {

// Reads the field "output_of" of `owner`: a request id, or an object with the fields of
// baton.v1.OutputOf.
void ReadOutputOf(FieldReader& owner, v1::OutputOf& out);

// Reads the field "group" of `owner`: a list of segments. Token ids are those of `model`.
void ReadGroup(FieldReader& owner, const ServedModel& model, v1::Group& group);

// Reads "segments": a list of {"text"}, {"token_ids"}, {"output_of"} or {"group"}. In a group,
// {"agent_name": {}} is a segment too. Token ids are those of `model`.
void ReadSegmentList(FieldReader& body, const ServedModel& model, v1::Segments& segments);

// Reads token ids that `model` has. The message of INVALID_ARGUMENT names the element.
absl::Status ReadTokenIds(const Json& list, std::string_view path, const ServedModel& model, v1::TokenIds& ids);

}  // namespace baton
