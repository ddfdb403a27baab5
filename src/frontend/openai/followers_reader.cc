#include "frontend/openai/followers_reader.h"

#include <string>

#include "base/status.h"
#include "base/strings.h"
#include "frontend/openai/chat_reader.h"
#include "frontend/openai/chat_tools.h"
#include "frontend/openai/request_fields.h"

namespace baton {
namespace {

int CountOutputs(const v1::Chat& chat) {
  int outputs = 0;
  for (const v1::ChatMessage& message : chat.messages()) {
    for (const v1::Segment& part : message.parts()) outputs += part.has_output_of();
  }
  return outputs;
}

// Another model than the call's, if it names one.
absl::StatusOr<const ServedModel*> ReadFollowerModel(FieldReader& fields, const ServedModels& models,
                                                     const CompletionCall& call) {
  if (fields.Any("model") == nullptr) return call.model;
  auto model = ReadModel(fields, models);
  if (model.ok() || !absl::IsNotFound(model.status())) return model;
  return absl::NotFoundError(StrCat(fields.Path(""), Message(model.status())));
}

absl::Status ReadFollower(FieldReader& fields, const ServedModels& models, const CompletionCall& call, Follower& out) {
  CompletionCall own;  // what tools would mean for an answer, of which there is none
  ASSIGN_OR_RETURN(own.model, ReadFollowerModel(fields, models, call));
  out.request.set_model(own.model->name);
  out.request.mutable_sampling()->set_max_tokens(0);
  v1::Chat& chat = *out.request.mutable_chat();
  ReadMessages(fields, *own.model, Outputs::kOwn, chat, out.values);
  ReadTools(fields, own, out.values);
  ReadTemplateKwargs(fields, out.values);
  const int outputs = CountOutputs(chat);
  if (outputs < 1 || outputs > kMaxOutputs) {
    fields.Refuse("messages", StrCat("expected 1 to ", kMaxOutputs, " parts of type 'output', got ", outputs));
  }
  return fields.Finish();
}

}  // namespace

absl::Status ReadFollowers(FieldReader& body, const ServedModels& models, CompletionCall& call) {
  const Json* list = body.Array("followers");
  if (!body.ok() || list == nullptr || list->empty()) return absl::OkStatus();
  if (list->size() > kMaxFollowers) {
    body.Refuse("followers", StrCat(list->size(), " elements, limit ", kMaxFollowers));
  } else if (call.samples != 1) {
    body.Refuse("followers", StrCat("expected one choice whose output they wait for, got n ", call.samples));
  }
  for (size_t i = 0; i < list->size() && body.ok(); ++i) {
    FieldReader fields((*list)[i], ElementPath("followers", i));
    if (!fields.ok()) return fields.Finish();
    RETURN_IF_ERROR(ReadFollower(fields, models, call, call.followers.emplace_back()));
  }
  return absl::OkStatus();
}

}  // namespace baton
