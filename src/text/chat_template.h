// The model's own chat template (Jinja), from tokenizer_config.json or chat_template.jinja.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "text/jinja/value.h"

namespace baton {

// What transformers' apply_chat_template passes to the template.
struct ChatInput {
  jinja::Value messages = jinja::None{};  // a list of dicts with "role", "content", ...
  jinja::Value tools = jinja::None{};     // a list, or none
  // A dict of further variables, or none. REQUIRES: CheckTemplateVariables accepted them.
  jinja::Value variables = jinja::None{};
  bool add_generation_prompt = true;
  absl::Time now;  // the time of the template's strftime_now(), in the local time zone
};

// The variables of a caller: at most 64 KiB as JSON, and none that Render sets itself, nor a function of the language.
// INVALID_ARGUMENT: "FIELD: ..." or "FIELD.NAME: ...". REQUIRES: an object.
absl::Status CheckTemplateVariables(const nlohmann::ordered_json& variables, std::string_view field);

class ChatTemplate {
 public:
  // NOT_FOUND if the model has none; a construct that we do not implement is refused by name and line.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Load(const std::string& directory);
  // From source, with the special tokens that templates refer to (either may be empty).
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Parse(std::string source, std::string bos_token,
                                                             std::string eos_token);
  virtual ~ChatTemplate() = default;
  // INVALID_ARGUMENT carries what the template's raise_exception said. Steps and output size are limited. Thread-safe.
  virtual absl::StatusOr<std::string> Render(const ChatInput& input) const = 0;
  // As the model's makers wrote it, for code that derives the format of the model's answers.
  virtual std::string_view source() const = 0;
};

}  // namespace baton
