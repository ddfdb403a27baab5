#include "frontend/openai/chat_reader.h"

#include <utility>

#include "base/status.h"
#include "base/strings.h"
#include "frontend/openai/body_readers.h"
#include "frontend/openai/history_reader.h"
#include "frontend/openai/reasoning_effort.h"
#include "frontend/openai/request_fields.h"
#include "model/sampling_params.h"

namespace baton {
namespace {

int CountOutputs(const v1::Chat& chat) {
  int outputs = 0;
  for (const v1::ChatMessage& message : chat.messages()) {
    for (const v1::Segment& part : message.parts()) outputs += part.has_output_of();
  }
  return outputs;
}

}  // namespace

void ReadChatMaxTokens(BodyDraft& draft, const ApiField& field) {
  v1::Sampling& sampling = *draft.request.mutable_sampling();
  const auto limit = draft.body.Integer32(field.name, 0);
  if (!limit) return;
  if (sampling.has_max_tokens() && sampling.max_tokens() != *limit) {
    draft.body.Refuse(field.name, StrCat("expected the same as max_tokens, ", sampling.max_tokens(), ", got ", *limit));
  }
  if (!sampling.has_max_tokens()) draft.call.form.paths.max_tokens = field.name;
  sampling.set_max_tokens(*limit);
}

void ReadChatLogprobs(BodyDraft& draft, const ApiField& field) {
  if (!draft.body.Bool(field.name).value_or(false)) return;
  draft.call.logprobs = 0;
  draft.request.mutable_sampling()->set_logprobs(0);
}

void ReadTopLogprobs(BodyDraft& draft, const ApiField& field) {
  const auto top = draft.body.Integer32(field.name, 0, kMaxTopLogprobs);
  if (!top) return;
  if (!draft.call.logprobs) {
    if (*top != 0) draft.body.Refuse(field.name, "requires logprobs: true");
    return;
  }
  draft.call.logprobs = *top;
  draft.request.mutable_sampling()->set_logprobs(*top);
}

void ReadMessages(BodyDraft& draft, const ApiField& field) {
  FieldReader& body = draft.body;
  const bool is_hint = draft.api == Api::kPrefillHint;
  const Json* messages = body.Array(field.name);
  if (messages == nullptr) return body.Refuse(field.name, "expected a list of messages, got none");
  // Set even for a list without messages, so that the request is a chat.
  HistoryReader history(*draft.call.model, is_hint, *draft.request.mutable_chat(), draft.values);
  for (size_t i = 0; i < messages->size() && body.ok(); ++i) {
    FieldReader message((*messages)[i], ElementPath(body.Path(field.name), i));
    if (message.ok()) history.Read(message);
    body.Check(message.Finish());
  }
  draft.call.left_out = history.left_out();
  if (!is_hint) return;
  const int count = CountOutputs(draft.request.chat());
  if (count >= 1 && count <= kMaxOutputs) return;
  body.Refuse(field.name, StrCat("expected 1 to ", kMaxOutputs, " parts of type 'output', got ", count));
}

void ReadGenerationPrompt(BodyDraft& draft, const ApiField& field) {
  draft.values.add_generation_prompt = draft.body.Bool(field.name).value_or(true);
}

void ReadTemplateKwargs(BodyDraft& draft, const ApiField& field) {
  const Json* variables = draft.body.Object(field.name);
  if (variables == nullptr || variables->empty()) return;
  draft.body.Check(CheckTemplateVariables(*variables, draft.body.Path(field.name)));
  if (draft.body.ok()) draft.values.variables = jinja::Value::FromJson(*variables);
}

void ReadReasoningEffort(BodyDraft& draft, const ApiField& field) {
  const std::string* effort = draft.body.Text(field.name);
  if (effort == nullptr) return;
  draft.body.Check(CheckEffort(*effort, draft.body.Path(field.name)));
  if (!draft.body.ok()) return;
  draft.call.reasoning_effort = *effort;
  draft.values.variables = WithEffort(*effort, draft.values.variables);
}

absl::StatusOr<CompletionCall> ReadChat(const Json& json, const ServedModels& models) {
  FieldReader body(json, "");
  CompletionCall call;
  call.chat = true;
  v1::GenerateRequest request;
  BodyDraft draft = DraftOf(Api::kChat, body, models, call, request);
  RETURN_IF_ERROR(ReadFields(draft));
  RETURN_IF_ERROR(MakeRequests(request, std::vector<v1::Segments>(1), call));
  return call;
}

}  // namespace baton
