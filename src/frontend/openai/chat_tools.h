// Calls of tools in a chat's earlier messages.
#pragma once

#include "frontend/openai/field_reader.h"
#include "text/chat_values.h"

namespace baton {

// "tool_calls" of an assistant's message, and fields beside it that a client sends back as it got them: null. None: the
// message has no calls.
jinja::Value ReadToolCalls(FieldReader& message);

}  // namespace baton
