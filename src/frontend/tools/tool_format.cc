#include "frontend/tools/tool_format.h"

#include <optional>
#include <string_view>

#include "base/logging.h"
#include "base/strings.h"

namespace baton {
namespace {

// Returns nothing if the template uses a format that is not in the list.
std::optional<ToolFormat> FormatIn(const ChatTemplate& chat_template) {
  // AdaptChat then shows the tools in this format.
  if (!chat_template.abilities().tools) return ToolFormat::kHermes;
  const std::string_view source = chat_template.source();
  const auto has = [&](std::string_view part) { return source.find(part) != std::string_view::npos; };
  // Qwen3-Coder has the tag too, but with XML in it.
  if (has("<tool_call>") && !has("<function=")) return ToolFormat::kHermes;
  // Llama 3.1's template has both texts. Those of 3.2 and 3.3 have only the second.
  if (has("<|python_tag|>") || has("\"parameters\": dictionary of argument name")) return ToolFormat::kLlama;
  return std::nullopt;
}

}  // namespace

absl::StatusOr<ToolFormat> ToolFormatOf(const ServedModel& model) {
  const ChatTemplate* const chat_template = model.TemplateFor(/*tools=*/true);
  if (chat_template == nullptr) {
    return absl::InvalidArgumentError(StrCat("expected a model with a chat template, got '", model.name, "'"));
  }
  if (const auto format = FormatIn(*chat_template)) return *format;
  return absl::InvalidArgumentError(StrCat("expected a chat template with JSON in <tool_call> (Qwen, Hermes) or with ",
                                           "Llama 3's JSON, got another in '", model.shown_name(), "'"));
}

void DropUnknownToolTemplate(ServedModel& model) {
  if (model.tool_template == nullptr || FormatIn(*model.tool_template)) return;
  spdlog::warn(
      "model '{}': chats with tools use the default template, because the calls of 'tool_use' have an "
      "unknown format",
      model.name);
  model.tool_template = nullptr;
}

}  // namespace baton
