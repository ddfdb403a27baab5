#include "text/chat_adapter.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/strings.h"

namespace baton {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Value;

constexpr std::string_view kBlockBegin =
    "You may call functions. Each line between <tools> and </tools> describes one function as JSON.\n<tools>\n";
constexpr std::string_view kBlockEnd =
    "</tools>\n\nTo call a function, write its name and its arguments as JSON between <tool_call> and </tool_call>:\n"
    "<tool_call>\n{\"name\": \"NAME\", \"arguments\": {\"ARGUMENT\": \"VALUE\"}}\n</tool_call>\n"
    "The result then follows between <tool_response> and </tool_response>. If no function helps, answer without a "
    "call.";

// Returns a member, or undefined.
Value Member(const Value& value, std::string_view name) {
  const Dict* dict = value.AsDict();
  const Value* member = dict == nullptr ? nullptr : Find(*dict, name);
  return member == nullptr ? Value() : *member;
}

std::string TextOf(const Value& value, std::string_view name) {
  const Value member = Member(value, name);
  return member.IsUndefined() || member.IsNone() ? "" : member.ToText();
}

bool HasRole(const Value& message, std::string_view role) { return TextOf(message, "role") == role; }

// Returns the message with another content.
Value WithContent(const Value& message, std::string content) {
  Dict dict = *message.AsDict();
  std::erase_if(dict, [](const auto& member) { return member.first == "content"; });
  dict.emplace_back("content", std::move(content));
  return Value::MakeDict(std::move(dict));
}

Value NewMessage(const char* role, std::string content) {
  return Value::MakeDict({{"role", role}, {"content", std::move(content)}});
}

std::string JsonText(const Value& value) { return jinja::ToJson(value, -1).value_or("null"); }

const List* CallsOf(const Value& message) {
  const Value calls = Member(message, "tool_calls");
  const List* list = calls.AsList();
  return list == nullptr || list->empty() ? nullptr : list;
}

// Arguments that are text are those that a model wrote and that are not a JSON object.
std::string CallText(const Value& call) {
  const Value function = Member(call, "function");
  const Value arguments = Member(function, "arguments");
  const auto* text = arguments.As<std::string>();
  return StrCat("<tool_call>\n{\"name\": ", JsonText(TextOf(function, "name")), ", \"arguments\": ",
                text != nullptr                 ? *text
                : arguments.AsDict() == nullptr ? "{}"
                                                : JsonText(arguments),
                "}\n</tool_call>");
}

List WriteCalls(const List& messages) {
  List out;
  for (const Value& message : messages) {
    const Value calls = Member(message, "tool_calls");
    if (calls.AsList() == nullptr) {
      out.push_back(message);
      continue;
    }
    std::string content = TextOf(message, "content");
    for (const Value& call : *calls.AsList()) content += StrCat(content.empty() ? "" : "\n", CallText(call));
    Dict dict = *WithContent(message, std::move(content)).AsDict();
    std::erase_if(dict, [](const auto& member) { return member.first == "tool_calls"; });
    out.push_back(Value::MakeDict(std::move(dict)));
  }
  return out;
}

// Returns the dict of a message with one call, and without its other calls.
Value WithCall(const Value& message, const Value& call) {
  Dict dict = *message.AsDict();
  std::erase_if(dict, [](const auto& member) { return member.first == "tool_calls"; });
  dict.emplace_back("tool_calls", Value::MakeList({call}));
  return Value::MakeDict(std::move(dict));
}

// The results that follow one answer.
class Results {
 public:
  explicit Results(List messages) : messages_(std::move(messages)), taken_(messages_.size()) {
    for (size_t i = 0; i < messages_.size(); ++i) by_id_.emplace(TextOf(messages_[i], "tool_call_id"), i);
  }
  // Moves the result with this id to `out`, or the first one for a call without an id.
  void Take(const std::string& id, List& out) {
    size_t index = 0;
    if (id.empty()) {
      while (index < taken_.size() && taken_[index]) ++index;
    } else {
      const auto found = by_id_.find(id);
      index = found == by_id_.end() ? taken_.size() : found->second;
    }
    Take(index, out);
  }
  void TakeRest(List& out) {
    for (size_t i = 0; i < taken_.size(); ++i) Take(i, out);
  }

 private:
  void Take(size_t index, List& out) {
    if (index == taken_.size() || taken_[index]) return;
    taken_[index] = true;
    out.push_back(messages_[index]);
  }

  const List messages_;
  std::vector<bool> taken_;
  absl::flat_hash_map<std::string, size_t> by_id_;
};

List SplitCalls(const List& messages) {
  List out;
  for (size_t i = 0; i < messages.size();) {
    const Value& message = messages[i++];
    const List* calls = CallsOf(message);
    if (calls == nullptr || calls->size() == 1) {
      out.push_back(message);
      continue;
    }
    List following;
    for (; i < messages.size() && HasRole(messages[i], "tool"); ++i) following.push_back(messages[i]);
    Results results(std::move(following));
    for (size_t k = 0; k < calls->size(); ++k) {
      out.push_back(WithCall(k == 0 ? message : NewMessage("assistant", ""), (*calls)[k]));
      results.Take(TextOf((*calls)[k], "id"), out);
    }
    results.TakeRest(out);
  }
  return out;
}

// If messages of the user may not follow each other, a message after results joins them.
List WriteResults(const List& messages, bool repeated_users) {
  List out;
  std::string results;
  const auto flush = [&] {
    if (!results.empty()) out.push_back(NewMessage("user", std::exchange(results, "")));
  };
  for (const Value& message : messages) {
    const std::string content = TextOf(message, "content");
    if (HasRole(message, "tool")) {
      results += StrCat(results.empty() ? "" : "\n", "<tool_response>\n", content, "\n</tool_response>");
    } else if (!results.empty() && !repeated_users && HasRole(message, "user")) {
      out.push_back(WithContent(message, StrCat(std::exchange(results, ""), "\n", content)));
    } else {
      flush();
      out.push_back(message);
    }
  }
  flush();
  return out;
}

std::string ToolBlock(const List& tools) {
  std::string block(kBlockBegin);
  for (const Value& tool : tools) block += JsonText(tool) + "\n";
  return block + std::string(kBlockEnd);
}

List AddBlock(List messages, const std::string& block, bool system) {
  if (system && !messages.empty() && HasRole(messages.front(), "system")) {
    messages.front() = WithContent(messages.front(), StrCat(TextOf(messages.front(), "content"), "\n\n", block));
    return messages;
  }
  const auto user = std::ranges::find_if(messages, [](const Value& message) { return HasRole(message, "user"); });
  if (system || user == messages.end()) {
    messages.insert(messages.begin(), NewMessage(system ? "system" : "user", block));
  } else {
    *user = WithContent(*user, StrCat(block, "\n\n", TextOf(*user, "content")));
  }
  return messages;
}

}  // namespace

ChatInput AdaptChat(ChatInput input, const ChatAbilities& can) {
  const List* given = input.messages.AsList();
  if (given == nullptr) return input;
  List messages = *given;
  const List* tools = input.tools.AsList();
  // The block describes the text of calls and results, so they need it too.
  const bool adds_block = !can.tools && tools != nullptr && !tools->empty();
  if (adds_block || !can.calls) {
    messages = WriteCalls(messages);
  } else if (!can.several_calls) {
    messages = SplitCalls(messages);
  }
  if (adds_block || !can.results) messages = WriteResults(messages, can.repeated_users);
  if (adds_block) {
    messages = AddBlock(std::move(messages), ToolBlock(*tools), can.system);
    input.tools = jinja::None{};
  }
  input.messages = Value::MakeList(std::move(messages));
  return input;
}

}  // namespace baton
