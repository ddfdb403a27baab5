// The chat templates of a model (Jinja), from tokenizer_config.json or files of their own.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "text/chat_abilities.h"
#include "text/jinja/value.h"

namespace baton {

// The inputs of a template, as in apply_chat_template of transformers.
struct ChatInput {
  jinja::Value messages = jinja::None{};  // a list of dicts with "role", "content", ...
  jinja::Value tools = jinja::None{};     // a list, or None
  // A dict of further variables, or None. REQUIRES: they pass CheckTemplateVariables.
  jinja::Value variables = jinja::None{};
  bool add_generation_prompt = true;
  absl::Time now;  // the time that strftime_now() formats, in the local time zone
};

// Checks the variables of a client. They take at most 64 KiB as JSON. None may have the name of a
// variable that Render sets itself, or of a function of the template language. The message of an
// INVALID_ARGUMENT error begins with "FIELD: " or "FIELD.NAME: ". REQUIRES: `variables` is an
// object.
absl::Status CheckTemplateVariables(const nlohmann::ordered_json& variables, std::string_view field);

class ChatTemplate {
 public:
  // Models may have a template for all chats, and another one for chats with tools.
  static constexpr std::string_view kDefault = "default", kToolUse = "tool_use";

  // Loads a named template of a model directory, as transformers does: from chat_template.jinja or
  // additional_chat_templates/NAME.jinja, or from tokenizer_config.json if there is no
  // chat_template.jinja. Fails with NOT_FOUND if the model has no such template. If the template
  // uses a construct that Baton does not implement, the error names the construct and its line.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Load(const std::string& directory,
                                                            std::string_view name = kDefault);
  // Parses a template. `bos_token` and `eos_token` are the values of these variables and may be
  // empty.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Parse(std::string source, std::string bos_token,
                                                             std::string eos_token);
  virtual ~ChatTemplate() = default;
  // Renders the template. If the template calls raise_exception, fails with INVALID_ARGUMENT and
  // its message. Steps and output size are limited. Thread-safe.
  virtual absl::StatusOr<std::string> Render(const ChatInput& input) const = 0;
  // Returns the template's text, for code that derives the format of the model's answers from it.
  virtual std::string_view source() const = 0;
  virtual const ChatAbilities& abilities() const = 0;
};

}  // namespace baton
