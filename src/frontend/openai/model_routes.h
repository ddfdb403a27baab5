// The bodies of routes that generate nothing.
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

// GET /v1/models. `created`: since when they are served here.
std::string ModelsBody(const ServedModels& models, absl::Time created);
// GET /v1/models/NAME. NOT_FOUND: it is not served.
absl::StatusOr<std::string> ModelBody(const ServedModels& models, std::string_view name, absl::Time created);
// GET /version.
std::string VersionBody();

// Renders and tokenises a chat: ChatTokens of frontend/prompt_reader.h, with the time of the call.
using ChatTokenizer =
    absl::FunctionRef<absl::StatusOr<std::vector<TokenId>>(const v1::Chat&, const ChatValues&, const ServedModel&)>;

// POST /tokenize: {"model", "prompt" or "messages" (and "tools"), "add_special_tokens"} to {"count", "max_model_len",
// "tokens"}. add_special_tokens, true unless set, is about what the tokenizer puts before a prompt, and not for
// messages, where the template does. Takes time linear in the text. INVALID_ARGUMENT: a bad field, or more text than
// the model's context can hold; NOT_FOUND: the model.
absl::StatusOr<std::string> TokenizeBody(const Json& body, const ServedModels& models, ChatTokenizer chat_tokens);
// POST /detokenize: {"model", "tokens"} to {"prompt"}. Special tokens are shown by name. Errors as above.
absl::StatusOr<std::string> DetokenizeBody(const Json& body, const ServedModels& models);

}  // namespace baton
