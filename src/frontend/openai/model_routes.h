// The bodies of the routes that generate no tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/json/json_body.h"
#include "inference.pb.h"
#include "model/served_model.h"
#include "text/chat_values.h"

namespace baton {

// GET /v1/models: one element for each listed name. `created` is the time since which this router
// serves the models.
std::string ModelsBody(const ServedModels& models, absl::Time created);
// GET /v1/models/NAME. The answer has the name that was asked for, also if it is an alias. Returns
// NOT_FOUND if the model is not served.
absl::StatusOr<std::string> ModelBody(const ServedModels& models, const std::string& name, absl::Time created);
// GET /version.
std::string VersionBody();

// Renders and tokenises a chat at the time of the call. See ChatTokens in frontend/prompt_reader.h.
using ChatTokenizer =
    absl::FunctionRef<absl::StatusOr<std::vector<TokenId>>(const v1::Chat&, const ChatValues&, const ServedModel&)>;

// POST /tokenize. The fields are "model", "prompt" or "messages" (and "tools"), and
// "add_special_tokens". The answer has "count", "max_model_len" and "tokens". add_special_tokens,
// true by default, adds the tokenizer's prefix to a prompt. It does not apply to messages, because
// the template adds the prefix. Takes time linear in the text. Returns INVALID_ARGUMENT if a field
// is wrong, or if the text exceeds the model's context length. Returns NOT_FOUND if the model is
// not served.
absl::StatusOr<std::string> TokenizeBody(const Json& body, const ServedModels& models, ChatTokenizer chat_tokens);
// POST /detokenize: {"model", "tokens"} to {"prompt"}. Special tokens appear by name. Errors are
// those of TokenizeBody.
absl::StatusOr<std::string> DetokenizeBody(const Json& body, const ServedModels& models);

}  // namespace baton
