#include "text/chat_abilities.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "text/chat_template.h"

namespace baton {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Value;

// Words that no template has.
constexpr char kFirst[] = "baton_first", kSecond[] = "baton_second", kRole[] = "batonrole";

Value MessageOf(const char* role, const char* content) {
  return Value::MakeDict({{"role", role}, {"content", content}});
}

// Some templates accept only ids of nine letters and digits.
Value Call(const char* name) {
  const Value function = Value::MakeDict({{"name", name}, {"arguments", Value::MakeDict({})}});
  return Value::MakeDict({{"id", "callid123"}, {"type", "function"}, {"function", function}});
}

Value Answer(List calls) {
  return Value::MakeDict({{"role", "assistant"}, {"content", ""}, {"tool_calls", Value::MakeList(std::move(calls))}});
}

Value Tool() {
  const Value parameters = Value::MakeDict({{"type", "object"}, {"properties", Value::MakeDict({})}});
  const Value function = Value::MakeDict({{"name", kFirst}, {"description", kFirst}, {"parameters", parameters}});
  return Value::MakeDict({{"type", "function"}, {"function", function}});
}

class Probe {
 public:
  // `tools` are those of all chats.
  Probe(const ChatTemplate& chat_template, Value tools) : template_(chat_template), tools_(std::move(tools)) {}

  // Returns the text of a chat, or nothing if the template refuses it.
  std::optional<std::string> Render(List messages) const {
    auto text =
        template_.Render({.messages = Value::MakeList(std::move(messages)), .tools = tools_, .now = absl::UnixEpoch()});
    if (!text.ok()) return std::nullopt;
    return *std::move(text);
  }
  // Returns whether the text of a chat has all these words.
  bool Shows(List messages, std::initializer_list<std::string_view> words) const {
    const auto text = Render(std::move(messages));
    if (!text) return false;
    for (const std::string_view word : words) {
      if (text->find(word) == std::string::npos) return false;
    }
    return true;
  }

 private:
  const ChatTemplate& template_;
  const Value tools_;
};

// A template that prints the role of any message has no form of its own for results.
bool ShowsResults(const Probe& probe, const Value& answer) {
  const auto with = [&](const char* role) {
    return probe.Render({MessageOf("user", "hello"), answer, MessageOf(role, kSecond)});
  };
  const auto result = with("tool");
  if (!result || result->find(kSecond) == std::string::npos) return false;
  auto unknown = with(kRole);
  if (!unknown) return true;
  for (size_t at = unknown->find(kRole); at != std::string::npos; at = unknown->find(kRole)) {
    unknown->replace(at, std::string_view(kRole).size(), "tool");
  }
  return *unknown != *result;
}

}  // namespace

ChatAbilities AbilitiesOf(const ChatTemplate& chat_template) {
  const Probe without(chat_template, jinja::None{}), with(chat_template, Value::MakeList({Tool()}));
  const Value user = MessageOf("user", "hello");
  ChatAbilities can;
  can.tools = with.Render({user}) != without.Render({user});
  // Some templates are for chats with tools only, or show calls only beside tools.
  const Probe& probe = can.tools ? with : without;
  can.calls = probe.Shows({user, Answer({Call(kFirst)})}, {kFirst});
  can.several_calls = probe.Shows({user, Answer({Call(kFirst), Call(kSecond)})}, {kFirst, kSecond});
  can.results = ShowsResults(probe, can.calls ? Answer({Call(kFirst)}) : MessageOf("assistant", kFirst));
  can.system = probe.Shows({MessageOf("system", kFirst), user}, {kFirst});
  can.repeated_users = probe.Shows({MessageOf("user", kFirst), MessageOf("user", kSecond)}, {kFirst, kSecond});
  return can;
}

}  // namespace baton
