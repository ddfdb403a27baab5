#include "frontend/openai/chat_reader.h"

#include <utility>

#include "base/status.h"
#include "base/strings.h"
#include "frontend/openai/agent_fields.h"
#include "frontend/openai/body_readers.h"
#include "frontend/openai/chat_tools.h"
#include "frontend/openai/request_fields.h"
#include "model/sampling_params.h"

namespace baton {
namespace {

// The parts of a message's content that stand for an output.
enum class Outputs {
  kNamed,  // {"type": "output_of", "output_of": ...}: the output of another call
  kOwn,    // {"type": "output"}: the output of this call, without a name
};

void ReadPart(const Json& element, const std::string& path, FieldReader& message, Outputs outputs, v1::Segment& part) {
  const std::string known = outputs == Outputs::kOwn ? "expected 'text' or 'output'" : "expected 'text' or 'output_of'";
  FieldReader fields(element, path);
  const std::string* type = fields.Text("type");
  if (!fields.ok()) return message.Check(fields.Finish());
  if (type == nullptr) {
    fields.Refuse("type", known + ", got none");
  } else if (*type == "text") {
    if (const auto* text = fields.Text("text")) {
      part.set_text(*text);
    } else {
      fields.Refuse("text", "expected a string, got none");
    }
  } else if (outputs == Outputs::kOwn && *type == "output") {
    part.mutable_output_of();
  } else if (outputs == Outputs::kNamed && *type == "output_of") {
    if (fields.Any("output_of") == nullptr) fields.Refuse("output_of", "expected a request id or an object, got none");
    ReadOutputOf(fields, *part.mutable_output_of());
  } else {
    fields.Refuse("type", StrCat(known, ", got ", ShowJson(*type), ", which is not supported"));
  }
  message.Check(fields.Finish());
}

// Reads a text, or a list of parts that are joined without separators.
void ReadContent(FieldReader& message, Outputs outputs, bool has_calls, v1::ChatMessage& out) {
  const Json* content = message.Any("content");
  if (content == nullptr) {
    // An assistant's message may have no text.
    const bool silent = has_calls || !out.reasoning_content().empty();
    if (!silent) message.Refuse("content", "expected a string or a list of parts, got none");
    return;
  }
  if (content->is_string()) return out.set_content(content->get_ref<const std::string&>());
  if (!content->is_array()) return message.RefuseType("content", "a string or a list of parts", *content);
  for (size_t i = 0; i < content->size() && message.ok(); ++i) {
    ReadPart((*content)[i], ElementPath(message.Path("content"), i), message, outputs, *out.add_parts());
  }
}

void ReadMessage(FieldReader& message, Outputs outputs, v1::ChatMessage& out, jinja::Value& calls) {
  const std::string* role = message.Text("role");
  const auto is = [&](std::string_view name) { return role != nullptr && *role == name; };
  if (!is("system") && !is("developer") && !is("user") && !is("assistant") && !is("tool")) {
    return message.Refuse("role", StrCat("expected 'system', 'developer', 'user', 'assistant' or 'tool', got ",
                                         role == nullptr ? "none" : ShowJson(*role)));
  }
  out.set_role(is("developer") ? "system" : *role);
  if (const auto* name = message.Text("name")) out.set_name(*name);
  if (is("assistant")) {
    calls = ReadToolCalls(message);
    // Names of the field in earlier and later versions of vLLM.
    for (const char* name : {"reasoning_content", "reasoning"}) {
      const auto* reasoning = message.Text(name);
      if (reasoning == nullptr) continue;
      if (!out.reasoning_content().empty() && out.reasoning_content() != *reasoning) {
        message.Refuse(name, "expected the same text as reasoning_content, or only one of the two");
      }
      out.set_reasoning_content(*reasoning);
    }
  }
  if (is("tool")) {
    if (const auto* id = message.Text("tool_call_id")) {
      out.set_tool_call_id(*id);
    } else {
      message.Refuse("tool_call_id", "expected the id of the call that it answers, got none");
    }
  }
  ReadContent(message, outputs, !calls.IsNone(), out);
}

int CountOutputs(const v1::Chat& chat) {
  int outputs = 0;
  for (const v1::ChatMessage& message : chat.messages()) {
    for (const v1::Segment& part : message.parts()) outputs += part.has_output_of();
  }
  return outputs;
}

// A model without a template counts as showing calls. The whole chat is refused later.
bool ShowsCalls(const ServedModel& model) {
  return model.chat_template == nullptr || model.chat_template->source().find("tool_calls") != std::string_view::npos;
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
  const ServedModel& model = *draft.call.model;
  const Outputs outputs = draft.api == Api::kPrefillHint ? Outputs::kOwn : Outputs::kNamed;
  const Json* messages = body.Array(field.name);
  if (messages == nullptr) return body.Refuse(field.name, "expected a list of messages, got none");
  // Set even for a list without messages, so that the request is a chat.
  v1::Chat& chat = *draft.request.mutable_chat();
  for (size_t i = 0; i < messages->size() && body.ok(); ++i) {
    FieldReader message((*messages)[i], ElementPath(body.Path(field.name), i));
    if (message.ok()) {
      jinja::Value& calls = draft.values.tool_calls.emplace_back(jinja::None{});
      ReadMessage(message, outputs, *chat.add_messages(), calls);
      if (!calls.IsNone() && !ShowsCalls(model)) {
        message.Refuse("tool_calls",
                       StrCat("expected a model whose chat template renders tool calls, got '", model.name, "'"));
      }
    }
    body.Check(message.Finish());
  }
  if (outputs == Outputs::kNamed) return;
  const int count = CountOutputs(draft.request.chat());
  if (count >= 1 && count <= kMaxOutputs) return;
  body.Refuse(field.name, StrCat("expected 1 to ", kMaxOutputs, " parts of type 'output', got ", count));
}

void ReadTemplateKwargs(BodyDraft& draft, const ApiField& field) {
  const Json* variables = draft.body.Object(field.name);
  if (variables == nullptr || variables->empty()) return;
  draft.body.Check(CheckTemplateVariables(*variables, draft.body.Path(field.name)));
  if (draft.body.ok()) draft.values.variables = jinja::Value::FromJson(*variables);
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
