// Readers of tool calls in a chat's earlier messages.
#pragma once

#include "frontend/openai/field_reader.h"
#include "text/chat_values.h"

namespace baton {

// Reads the calls of an assistant's message: "tool_calls", or "function_call" of the older API as
// one call. Returns None if the message has no calls. Otherwise each call has "type", "function"
// with "name" and "arguments", and "id" if the message has it. Arguments that are null or an empty
// text count as an empty object.
jinja::Value ReadToolCalls(FieldReader& message);

}  // namespace baton
