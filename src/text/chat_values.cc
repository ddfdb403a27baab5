#include "text/chat_values.h"

#include <string>
#include <utility>

namespace baton {
namespace {

jinja::Value ArgumentsValue(const Json& arguments) {
  if (!arguments.is_string()) return jinja::Value::FromJson(arguments);
  const auto& text = arguments.get_ref<const std::string&>();
  const auto object = ParseJson(text, "arguments");
  return object.ok() && object->is_object() ? jinja::Value::FromJson(*object) : jinja::Value(text);
}

// Converts `object` to a value, with `convert` for the value of the member `name`. If `object` is
// not an object, converts it as it is.
template <typename Convert>
jinja::Value ReplaceMember(const Json& object, std::string_view name, Convert convert) {
  if (!object.is_object()) return jinja::Value::FromJson(object);
  jinja::Dict dict;
  for (const auto& [key, value] : object.items()) {
    dict.emplace_back(key, key == name ? convert(value) : jinja::Value::FromJson(value));
  }
  return jinja::Value::MakeDict(std::move(dict));
}

}  // namespace

jinja::Value ToolCallsValue(const Json& calls) {
  jinja::List list;
  for (const Json& call : calls) {
    list.push_back(ReplaceMember(
        call, "function", [](const Json& function) { return ReplaceMember(function, "arguments", ArgumentsValue); }));
  }
  return jinja::Value::MakeList(std::move(list));
}

}  // namespace baton
