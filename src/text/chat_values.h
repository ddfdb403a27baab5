// What a chat has beside its messages' texts, as values of its template.
#pragma once

#include <cstddef>
#include <vector>

#include "base/json/json_body.h"
#include "text/jinja/value.h"

namespace baton {

// The front that parses a request's JSON makes these, and nothing behind it parses the JSON again.
struct ChatValues {
  jinja::Value tools = jinja::None{};      // a list, or none
  jinja::Value variables = jinja::None{};  // a dict of further variables of the template, or none
  std::vector<jinja::Value> tool_calls{};  // one for each message: a list, or none
};

// Upper bound on the JSON of a chat's tools, and on that of a message's tool calls.
inline constexpr size_t kMaxToolBytes = 1 << 20;

// OpenAI's tool calls as a template expects them: the arguments of a function, which are a string, are the object that
// they are in JSON. Arguments that are no object stay a string.
jinja::Value ToolCallsValue(const Json& calls);

}  // namespace baton
