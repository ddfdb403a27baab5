#include "frontend/openai/model_routes.h"

#include "base/status.h"
#include "base/strings.h"
#include "base/version.h"
#include "frontend/openai/agent_fields.h"
#include "frontend/openai/body_readers.h"
#include "frontend/openai/json_text.h"
#include "frontend/openai/token_text.h"
#include "router/client_request.h"

namespace baton {
namespace {

// `name` is the name under which the model is listed or was asked for. Clients of vLLM read `root`,
// `parent`, `max_model_len` and `permission`.
std::string ModelObject(const ServedModel& model, std::string_view name, absl::Time created) {
  const int64_t seconds = absl::ToUnixSeconds(created);
  return StrCat("{\"id\":", JsonString(name), ",\"object\":\"model\",\"created\":", seconds,
                ",\"owned_by\":\"baton\",\"root\":", JsonString(model.name),
                ",\"parent\":null,\"max_model_len\":", model.context,
                ",\"permission\":[{\"id\":", JsonString(StrCat("modelperm-", name)),
                ",\"object\":\"model_permission\",\"created\":", seconds,
                ",\"allow_create_engine\":false,\"allow_sampling\":true,\"allow_logprobs\":true,"
                "\"allow_search_indices\":false,\"allow_view\":true,\"allow_fine_tuning\":false,"
                "\"organization\":\"*\",\"group\":null,\"is_blocking\":false}]}");
}

absl::StatusOr<std::vector<TokenId>> TextTokens(std::string_view text, bool with_prefix, const ServedModel& model) {
  RETURN_IF_ERROR((PromptLimit{model, 0}.CheckText(text, 0)));
  std::vector<TokenId> tokens;
  const auto prefix = model.tokenizer->prompt_prefix();
  if (with_prefix) tokens.assign(prefix.begin(), prefix.end());
  const auto ids = model.tokenizer->Encode(text, Tokenizer::SpecialTokens::kAsText);
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  RETURN_IF_ERROR((PromptLimit{model, 0}.Check(std::ssize(tokens))));
  return tokens;
}

}  // namespace

std::string ModelsBody(const ServedModels& models, absl::Time created) {
  std::string list;
  for (const ServedModel* model : models.all()) {
    for (const std::string& name : model->listed_names) {
      list += StrCat(list.empty() ? "" : ",", ModelObject(*model, name, created));
    }
  }
  return StrCat("{\"object\":\"list\",\"data\":[", list, "]}");
}

absl::StatusOr<std::string> ModelBody(const ServedModels& models, const std::string& name, absl::Time created) {
  // Elsewhere an empty name may mean the only model.
  if (name.empty()) return absl::NotFoundError("model: expected a name, got none");
  const absl::StatusOr<const ServedModel*> model = models.Find(name);
  if (!model.ok()) return absl::NotFoundError(model.status().message());
  return ModelObject(**model, name, created);
}

std::string VersionBody() { return StrCat("{\"version\":", JsonString(kVersion), "}"); }

void ReadTokenizeText(BodyDraft& draft, const ApiField& field) { draft.text = draft.body.Text(field.name); }

void ReadAddSpecialTokens(BodyDraft& draft, const ApiField& field) {
  draft.with_prefix = draft.body.Bool(field.name).value_or(true);
}

void ReadDetokenizeIds(BodyDraft& draft, const ApiField& field) {
  FieldReader& body = draft.body;
  const ServedModel& model = *draft.call.model;
  const Json* tokens = body.Array(field.name);
  if (tokens == nullptr) return body.Refuse(field.name, "expected a list of token ids, got none");
  if (std::ssize(*tokens) > model.context) {
    return body.Refuse(field.name, StrCat("expected at most ", model.context, ", got ", tokens->size(),
                                          " (context length ", model.context, " of '", model.shown_name(), "')"));
  }
  body.Check(ReadTokenIds(*tokens, field.name, model, draft.ids));
}

absl::StatusOr<std::string> TokenizeBody(const Json& json, const ServedModels& models, ChatTokenizer chat_tokens) {
  FieldReader body(json, "");
  CompletionCall call;
  v1::GenerateRequest request;
  BodyDraft draft =
      DraftOf(body.Any("prompt") != nullptr ? Api::kTokenizeText : Api::kTokenizeChat, body, models, call, request);
  RETURN_IF_ERROR(ReadFields(draft));
  const ServedModel* model = call.model;
  ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, draft.text == nullptr
                                                          ? chat_tokens(request.chat(), call.values, *model)
                                                          : TextTokens(*draft.text, draft.with_prefix, *model));
  std::string out = StrCat("{\"count\":", tokens.size(), ",\"max_model_len\":", model->context, ",\"tokens\":[");
  for (size_t i = 0; i < tokens.size(); ++i) absl::StrAppend(&out, i > 0 ? "," : "", tokens[i]);
  out += "]}";
  return out;
}

absl::StatusOr<std::string> DetokenizeBody(const Json& json, const ServedModels& models) {
  FieldReader body(json, "");
  CompletionCall call;
  v1::GenerateRequest request;
  BodyDraft draft = DraftOf(Api::kDetokenize, body, models, call, request);
  RETURN_IF_ERROR(ReadFields(draft));
  const std::span all(draft.ids.ids().data(), static_cast<size_t>(draft.ids.ids_size()));
  return StrCat("{\"prompt\":", JsonString(TokensText(*call.model->tokenizer, all)), "}");
}

}  // namespace baton
