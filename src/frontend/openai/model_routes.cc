#include "frontend/openai/model_routes.h"

#include "base/status.h"
#include "base/strings.h"
#include "base/version.h"
#include "frontend/openai/agent_fields.h"
#include "frontend/openai/chat_reader.h"
#include "frontend/openai/chat_tools.h"
#include "frontend/openai/json_text.h"
#include "frontend/openai/request_fields.h"
#include "frontend/openai/token_text.h"
#include "router/client_request.h"

namespace baton {
namespace {

std::string ModelObject(const ServedModel& model, absl::Time created) {
  return StrCat("{\"id\":", JsonString(model.name), ",\"object\":\"model\",\"created\":", absl::ToUnixSeconds(created),
                ",\"owned_by\":\"baton\",\"max_model_len\":", model.context, "}");
}

absl::StatusOr<std::vector<TokenId>> TextTokens(std::string_view text, bool with_prefix, const ServedModel& model) {
  RETURN_IF_ERROR((Room{model, 0}.CheckText(text, 0)));
  std::vector<TokenId> tokens;
  const auto prefix = model.tokenizer->prompt_prefix();
  if (with_prefix) tokens.assign(prefix.begin(), prefix.end());
  const auto ids = model.tokenizer->Encode(text, Tokenizer::SpecialTokens::kAsText);
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  RETURN_IF_ERROR((Room{model, 0}.Check(std::ssize(tokens))));
  return tokens;
}

}  // namespace

std::string ModelsBody(const ServedModels& models, absl::Time created) {
  std::string list;
  for (const ServedModel* model : models.all()) {
    list += StrCat(list.empty() ? "" : ",", ModelObject(*model, created));
  }
  return StrCat("{\"object\":\"list\",\"data\":[", list, "]}");
}

absl::StatusOr<std::string> ModelBody(const ServedModels& models, std::string_view name, absl::Time created) {
  for (const ServedModel* model : models.all()) {
    if (model->name == name) return ModelObject(*model, created);
  }
  constexpr size_t kShownBytes = 256;
  return absl::NotFoundError(StrCat("model: unknown: '", name.substr(0, kShownBytes), "'"));
}

std::string VersionBody() { return StrCat("{\"version\":", JsonString(kVersion), "}"); }

absl::StatusOr<std::string> TokenizeBody(const Json& json, const ServedModels& models, ChatTokenizer chat_tokens) {
  FieldReader body(json, "");
  ASSIGN_OR_RETURN(const ServedModel* model, ReadModel(body, models));
  const std::string* prompt = body.Text("prompt");
  const bool with_prefix = body.Bool("add_special_tokens").value_or(true);
  v1::Chat chat;
  ChatValues values;
  if (prompt == nullptr) {
    CompletionCall call;
    call.model = model;
    ReadMessages(body, *model, Outputs::kNamed, chat, values);
    ReadTools(body, call, values);
    ReadTemplateKwargs(body, values);
  }
  RETURN_IF_ERROR(body.Finish());
  ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                   prompt == nullptr ? chat_tokens(chat, values, *model) : TextTokens(*prompt, with_prefix, *model));
  std::string out = StrCat("{\"count\":", tokens.size(), ",\"max_model_len\":", model->context, ",\"tokens\":[");
  for (size_t i = 0; i < tokens.size(); ++i) absl::StrAppend(&out, i > 0 ? "," : "", tokens[i]);
  out += "]}";
  return out;
}

absl::StatusOr<std::string> DetokenizeBody(const Json& json, const ServedModels& models) {
  FieldReader body(json, "");
  ASSIGN_OR_RETURN(const ServedModel* model, ReadModel(body, models));
  v1::TokenIds ids;
  const Json* tokens = body.Array("tokens");
  if (tokens != nullptr && std::ssize(*tokens) > model->context) {
    body.Refuse("tokens", StrCat("expected at most ", model->context, ", got ", tokens->size(), " (context ",
                                 model->context, " of '", model->name, "')"));
  } else if (tokens != nullptr) {
    body.Check(ReadTokenIds(*tokens, "tokens", model->vocab, ids));
  } else {
    body.Refuse("tokens", "expected a list of token ids, got none");
  }
  RETURN_IF_ERROR(body.Finish());
  const std::span all(ids.ids().data(), static_cast<size_t>(ids.ids_size()));
  return StrCat("{\"prompt\":", JsonString(TokensText(*model->tokenizer, all)), "}");
}

}  // namespace baton
