#include <string>

#include "base/strings.h"
#include "frontend/openai/body_readers.h"

namespace baton {
namespace {

// A prefill hint without a model has its call's model.
absl::Status ReadPrefillHint(FieldReader& fields, const BodyDraft& parent, PrefillHint& out) {
  CompletionCall own;  // takes the tools, which a hint does not use
  own.model = parent.call.model;
  out.request.mutable_sampling()->set_max_tokens(0);
  BodyDraft draft{.api = Api::kPrefillHint,
                  .body = fields,
                  .models = parent.models,
                  .call = own,
                  .request = out.request,
                  .values = out.values};
  return ReadFields(draft);
}

}  // namespace

void ReadPrefillHints(BodyDraft& draft, const ApiField& field) {
  FieldReader& body = draft.body;
  const Json* list = body.Array(field.name);
  if (list == nullptr || list->empty()) return;
  if (list->size() > kMaxPrefillHints) {
    return body.Refuse(field.name, StrCat(list->size(), " elements, limit ", kMaxPrefillHints));
  }
  if (draft.call.samples != 1) {
    return body.Refuse(field.name, StrCat("expected n = 1, got ", draft.call.samples));
  }
  for (size_t i = 0; i < list->size() && body.ok(); ++i) {
    FieldReader fields((*list)[i], ElementPath(body.Path(field.name), i));
    body.Check(fields.ok() ? ReadPrefillHint(fields, draft, draft.call.prefill_hints.emplace_back()) : fields.Finish());
  }
}

}  // namespace baton
