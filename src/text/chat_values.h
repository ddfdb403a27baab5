// The parts of a chat besides the texts of its messages, as values for the chat template.
#pragma once

#include <cstddef>
#include <vector>

#include "base/json/json_body.h"
#include "text/jinja/value.h"

namespace baton {

// The frontend makes these values when it parses the JSON of a request. Later stages do not parse
// the JSON again.
struct ChatValues {
  jinja::Value tools = jinja::None{};      // a list, or None
  jinja::Value variables = jinja::None{};  // a dict of further template variables, or None
  std::vector<jinja::Value> tool_calls{};  // one for each message: a list, or None
  bool add_generation_prompt = true;       // whether the beginning of an answer ends the prompt
};

// Upper bound on the bytes of JSON of a chat's tools, and of the tool calls of one message.
inline constexpr size_t kMaxToolBytes = 1 << 20;

// Converts OpenAI's tool calls to the form that templates expect. In OpenAI's form, the arguments
// of a function are a string with JSON. If they are a JSON object, the result has that object, and
// otherwise the string.
jinja::Value ToolCallsValue(const Json& calls);

}  // namespace baton
