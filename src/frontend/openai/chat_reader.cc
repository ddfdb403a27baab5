#include "frontend/openai/chat_reader.h"

#include <utility>

#include "base/status.h"
#include "base/strings.h"
#include "frontend/openai/agent_fields.h"
#include "frontend/openai/chat_tools.h"
#include "frontend/openai/followers_reader.h"
#include "frontend/openai/request_fields.h"
#include "model/sampling_params.h"

namespace baton {
namespace {

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

// A text, or parts, one after the other with nothing between.
void ReadContent(FieldReader& message, Outputs outputs, bool has_calls, v1::ChatMessage& out) {
  const Json* content = message.Any("content");
  if (content == nullptr) {
    const bool silent = has_calls || !out.reasoning_content().empty();  // an answer may have no text
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
    // vLLM's name, and its later one.
    for (const char* name : {"reasoning_content", "reasoning"}) {
      const auto* reasoning = message.Text(name);
      if (reasoning == nullptr) continue;
      if (!out.reasoning_content().empty() && out.reasoning_content() != *reasoning) {
        message.Refuse(name, "expected what reasoning_content says, or only one of them");
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

// Who has no template at all is refused later, for the whole chat.
bool ShowsCalls(const ServedModel& model) {
  return model.chat_template == nullptr || model.chat_template->source().find("tool_calls") != std::string_view::npos;
}

void ReadMaxTokens(FieldReader& body, v1::Sampling& sampling) {
  const auto max_tokens = body.Integer32("max_tokens");
  const auto max_completion_tokens = body.Integer32("max_completion_tokens");
  if (max_tokens && max_completion_tokens && *max_tokens != *max_completion_tokens) {
    body.Refuse("max_completion_tokens",
                StrCat("expected the same as max_tokens, ", *max_tokens, ", got ", *max_completion_tokens));
  }
  if (const auto limit = max_completion_tokens ? max_completion_tokens : max_tokens) sampling.set_max_tokens(*limit);
}

void ReadLogprobs(FieldReader& body, CompletionCall& call, v1::Sampling& sampling) {
  const bool wanted = body.Bool("logprobs").value_or(false);
  const auto top = body.Integer32("top_logprobs");
  if (top && *top != 0 && !wanted) return body.Refuse("top_logprobs", "is for logprobs: true only");
  if (!wanted) return;
  call.logprobs = top.value_or(0);
  if (*call.logprobs < 0 || *call.logprobs > kMaxTopLogprobs) {
    body.Refuse("top_logprobs", StrCat("expected [0, ", kMaxTopLogprobs, "], got ", *call.logprobs));
  }
  sampling.set_logprobs(*call.logprobs);
}

}  // namespace

void ReadMessages(FieldReader& body, const ServedModel& model, Outputs outputs, v1::Chat& chat, ChatValues& values) {
  const Json* messages = body.Array("messages");
  if (messages == nullptr) return body.Refuse("messages", "expected a list of messages, got none");
  for (size_t i = 0; i < messages->size() && body.ok(); ++i) {
    FieldReader message((*messages)[i], ElementPath(body.Path("messages"), i));
    if (message.ok()) {
      jinja::Value& calls = values.tool_calls.emplace_back(jinja::None{});
      ReadMessage(message, outputs, *chat.add_messages(), calls);
      if (!calls.IsNone() && !ShowsCalls(model)) {
        message.Refuse("tool_calls", StrCat("expected a model whose chat template has them, got '", model.name, "'"));
      }
    }
    body.Check(message.Finish());
  }
}

void ReadTemplateKwargs(FieldReader& body, ChatValues& values) {
  constexpr std::string_view kName = "chat_template_kwargs";
  const Json* variables = body.Object(kName);
  if (variables == nullptr || variables->empty()) return;
  body.Check(CheckTemplateVariables(*variables, body.Path(kName)));
  if (body.ok()) values.variables = jinja::Value::FromJson(*variables);
}

absl::StatusOr<CompletionCall> ReadChat(const Json& json, const ServedModels& models) {
  FieldReader body(json, "");
  CompletionCall call;
  call.chat = true;
  ASSIGN_OR_RETURN(v1::GenerateRequest common, ReadCommon(body, models, call));
  v1::Sampling& sampling = *common.mutable_sampling();
  ReadMaxTokens(body, sampling);
  ReadLogprobs(body, call, sampling);
  ReadMessages(body, *call.model, Outputs::kNamed, *common.mutable_chat(), call.values);
  ReadTools(body, call, call.values);
  ReadTemplateKwargs(body, call.values);
  RETURN_IF_ERROR(ReadFollowers(body, models, call));
  RETURN_IF_ERROR(body.Finish());
  RETURN_IF_ERROR(MakeRequests(common, std::vector<v1::Segments>(1), call));
  return call;
}

}  // namespace baton
