// Readers of tool calls in a chat's earlier messages.
#pragma once

#include "frontend/openai/field_reader.h"
#include "text/chat_values.h"

namespace baton {

// Reads "tool_calls" of an assistant's message. Also accepts empty fields that clients send back as
// they received them. Returns None if the message has no calls.
jinja::Value ReadToolCalls(FieldReader& message);

}  // namespace baton
