#include "frontend/openai/history_reader.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/strings.h"
#include "frontend/openai/chat_tools.h"
#include "frontend/openai/known_members.h"

namespace baton {
namespace {

constexpr std::string_view kOtherRole = "is not supported for this role";

// A refusal is the text of an answer without other text. It follows other text.
void ReadRefusal(FieldReader& message, v1::ChatMessage& out) {
  const std::string* text = message.Text("refusal");
  if (text == nullptr) return;
  if (out.parts_size() > 0) {
    out.add_parts()->set_text(*text);
  } else {
    *out.mutable_content() += *text;
  }
}

}  // namespace

std::optional<HistoryReader::Role> HistoryReader::ReadRole(FieldReader& message) {
  struct RoleName {
    std::string_view name;
    Role role;
  };
  constexpr RoleName kRoles[] = {{"system", Role::kSystem}, {"developer", Role::kSystem},
                                 {"user", Role::kUser},     {"assistant", Role::kAssistant},
                                 {"tool", Role::kTool},     {"function", Role::kFunction}};
  const std::string* name = message.Text("role");
  if (name != nullptr) {
    const auto* const known = std::ranges::find(kRoles, *name, &RoleName::name);
    if (known != std::end(kRoles)) return known->role;
  }
  message.Refuse("role", StrCat("expected 'system', 'developer', 'user', 'assistant', 'tool' or 'function', got ",
                                name == nullptr ? "none" : ShowJson(*name)));
  return std::nullopt;
}

// The two names are those of earlier and later versions of vLLM. Clients that also send parts of
// type `thinking` repeat the same thought there, so these parts are then left out.
void HistoryReader::ReadReasoning(FieldReader& message, v1::ChatMessage& out) {
  for (const char* name : {"reasoning_content", "reasoning"}) {
    const auto* reasoning = message.Text(name);
    if (reasoning == nullptr || reasoning->empty()) continue;
    if (!out.reasoning_content().empty() && out.reasoning_content() != *reasoning) {
      message.Refuse(name, "expected the same text as reasoning_content, or only one of the two");
    }
    out.set_reasoning_content(*reasoning);
  }
}

void HistoryReader::ReadToolCallId(FieldReader& message, Role role, v1::ChatMessage& out) {
  if (const auto* id = message.Text("tool_call_id")) {
    out.set_tool_call_id(*id);
  } else if (role == Role::kTool) {
    message.Refuse("tool_call_id", "expected the id of the call that it answers, got none");
  }
}

void HistoryReader::ReadParts(const Json& parts, FieldReader& message, Role role, v1::ChatMessage& out) {
  const PartPlace place{.model = model_,
                        .own_output = own_output_,
                        .may_reason = role == Role::kAssistant,
                        .leaves_out_media = role == Role::kTool || role == Role::kFunction};
  PartNotes notes;
  for (size_t i = 0; i < parts.size() && message.ok(); ++i) {
    ReadPart(parts[i], ElementPath(message.Path("content"), i), place, message, out, notes);
  }
  if (out.reasoning_content().empty()) out.set_reasoning_content(notes.reasoning);
  for (size_t i = 0; i < left_out_.size(); ++i) left_out_[i] += notes.left_out[i];
}

void HistoryReader::ReadContent(FieldReader& message, Role role, v1::ChatMessage& out) {
  const Json* content = message.Any("content");
  if (content == nullptr) {
    // Answers and results of tools may be empty.
    const bool needs_text = role == Role::kSystem || role == Role::kUser;
    if (needs_text) message.Refuse("content", "expected a string or a list of parts, got none");
  } else if (content->is_string()) {
    out.set_content(content->get_ref<const std::string&>());
  } else if (content->is_array()) {
    ReadParts(*content, message, role, out);
  } else {
    message.RefuseType("content", "a string or a list of parts", *content);
  }
}

void HistoryReader::Read(FieldReader& message) {
  v1::ChatMessage& out = *chat_.add_messages();
  jinja::Value& calls = values_.tool_calls.emplace_back(jinja::None{});
  const std::optional<Role> role = ReadRole(message);
  if (!role) return;
  constexpr std::string_view kRendered[] = {"system", "user", "assistant", "tool", "tool"};
  out.set_role(std::string(kRendered[static_cast<size_t>(*role)]));
  if (const auto* name = message.Text("name")) out.set_name(*name);
  const bool answers = *role == Role::kAssistant, is_result = *role == Role::kTool || *role == Role::kFunction;
  if (answers) {
    calls = ReadToolCalls(message);
    ReadReasoning(message, out);
  }
  if (is_result) ReadToolCallId(message, *role, out);
  ReadContent(message, *role, out);
  if (answers) ReadRefusal(message, out);
  // A client may send the members of other roles empty.
  for (const char* name : {"tool_calls", "function_call", "reasoning_content", "reasoning", "refusal"}) {
    if (!answers) SkipEmpty(message, name, kOtherRole);
  }
  if (!is_result) SkipEmpty(message, "tool_call_id", kOtherRole);
  SkipMembers(message, MessageMembers());
}

}  // namespace baton
