#include "text/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/json/json_body.h"
#include "base/status.h"
#include "base/strings.h"
#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace baton {
namespace {

using nlohmann::json;

constexpr std::streamsize kMaxTemplateBytes = 16 << 20;
constexpr size_t kMaxVariableBytes = 64 << 10;
// The variables that Render sets, and arguments of transformers' apply_chat_template that Render
// does not have.
constexpr std::string_view kOwnVariables[] = {"messages",  "tools",         "add_generation_prompt", "bos_token",
                                              "eos_token", "chat_template", "continue_final_message"};

// Fails with NOT_FOUND if there is no such file.
absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return absl::NotFoundError(StrCat(path, ": cannot be opened"));
  const std::streamsize size = file.tellg();
  if (size < 0 || size > kMaxTemplateBytes) {
    return absl::InvalidArgumentError(StrCat(path, ": ", size, " bytes, expected at most ", kMaxTemplateBytes));
  }
  std::string text(static_cast<size_t>(size), '\0');
  file.seekg(0);
  file.read(text.data(), size);
  return text;
}

// Fails with NOT_FOUND if there is no such file.
absl::StatusOr<json> ReadObject(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (object.is_object()) return object;
  return absl::InvalidArgumentError(StrCat(path, ": expected a JSON object"));
}

// Returns the text of "bos_token" or "eos_token", which is a string, an object with "content", or
// null.
std::string SpecialToken(const json& config, const char* name) {
  const auto token = config.find(name);
  if (token == config.end()) return "";
  if (token->is_string()) return token->get<std::string>();
  if (token->is_object() && token->contains("content") && (*token)["content"].is_string()) {
    return (*token)["content"].get<std::string>();
  }
  return "";
}

std::string FileOf(const std::string& directory, std::string_view name) {
  if (name == ChatTemplate::kDefault) return directory + "/chat_template.jinja";
  return StrCat(directory, "/additional_chat_templates/", name, ".jinja");
}

// Returns the source in "chat_template", which is a string or a list of {name, template}. A string
// is the template named "default". Fails with NOT_FOUND if there is no template of this name.
absl::StatusOr<std::string> TemplateSource(const json& config, const std::string& path, std::string_view name) {
  const auto entry = config.find("chat_template");
  if (entry == config.end() || entry->is_null()) {
    return absl::NotFoundError(StrCat(path, ": the model has no chat_template"));
  }
  const bool is_default = name == ChatTemplate::kDefault;
  if (entry->is_string() && is_default) return entry->get<std::string>();
  if (entry->is_array()) {
    for (const json& named : *entry) {
      if (named.is_object() && named.value("name", json()) == name && named.contains("template") &&
          named["template"].is_string()) {
        return named["template"].get<std::string>();
      }
    }
  }
  if (!is_default) return absl::NotFoundError(StrCat(path, ": chat_template: no entry is named '", name, "'"));
  return absl::InvalidArgumentError(
      StrCat(path, ": chat_template: expected a string or a list with an entry named 'default'"));
}

class JinjaChatTemplate final : public ChatTemplate {
 public:
  JinjaChatTemplate(std::string source, jinja::Body body, std::string bos, std::string eos)
      : source_(std::move(source)), body_(std::move(body)), bos_(std::move(bos)), eos_(std::move(eos)) {
    abilities_ = AbilitiesOf(*this);
  }

  absl::StatusOr<std::string> Render(const ChatInput& input) const override {
    jinja::Dict globals = {{"messages", input.messages},
                           {"tools", input.tools},
                           {"add_generation_prompt", input.add_generation_prompt},
                           {"bos_token", bos_},
                           {"eos_token", eos_}};
    if (const jinja::Dict* more = input.variables.AsDict()) globals.insert(globals.end(), more->begin(), more->end());
    return jinja::Run(body_, globals, input.now, jinja::Limits{});
  }
  std::string_view source() const override { return source_; }
  const ChatAbilities& abilities() const override { return abilities_; }

 private:
  const std::string source_;
  const jinja::Body body_;
  const std::string bos_, eos_;
  ChatAbilities abilities_;
};

}  // namespace

absl::Status CheckTemplateVariables(const nlohmann::ordered_json& variables, std::string_view field) {
  if (const size_t bytes = JsonBytes(variables); bytes > kMaxVariableBytes) {
    return absl::InvalidArgumentError(
        StrCat(field, ": expected at most ", kMaxVariableBytes, " bytes of JSON, got ", bytes));
  }
  for (const auto& [name, value] : variables.items()) {
    if (std::ranges::find(kOwnVariables, name) == std::end(kOwnVariables) && !jinja::IsFunction(name)) continue;
    return absl::InvalidArgumentError(StrCat(field, ".", name, ": a client may not set this variable"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(std::string source, std::string bos_token,
                                                                  std::string eos_token) {
  ASSIGN_OR_RETURN(jinja::Body body, jinja::Parse(source));
  return std::make_unique<JinjaChatTemplate>(std::move(source), std::move(body), std::move(bos_token),
                                             std::move(eos_token));
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Load(const std::string& directory, std::string_view name) {
  std::string path = directory + "/tokenizer_config.json";
  absl::StatusOr<json> read = ReadObject(path);
  if (absl::IsNotFound(read.status())) {
    path = directory + "/special_tokens_map.json";  // This file has the special tokens as well.
    read = ReadObject(path);
  }
  if (absl::IsNotFound(read.status())) read = json::object();
  RETURN_IF_ERROR(read.status());
  const json& config = *read;
  // Newer models have each template in its own file.
  absl::StatusOr<std::string> source = ReadFile(FileOf(directory, name));
  if (absl::IsNotFound(source.status()) && !std::filesystem::exists(FileOf(directory, kDefault))) {
    source = TemplateSource(config, path, name);
  }
  RETURN_IF_ERROR(source.status());
  absl::StatusOr<std::unique_ptr<ChatTemplate>> parsed =
      Parse(*std::move(source), SpecialToken(config, "bos_token"), SpecialToken(config, "eos_token"));
  if (parsed.ok()) return parsed;
  const std::string which = name == kDefault ? "" : StrCat("the template '", name, "': ");
  return absl::Status(parsed.status().code(), StrCat(directory, ": ", which, Message(parsed.status())));
}

}  // namespace baton
