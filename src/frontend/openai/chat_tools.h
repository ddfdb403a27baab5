// A chat's tools, and the calls of them in earlier messages.
#pragma once

#include "frontend/openai/completion_call.h"
#include "frontend/openai/field_reader.h"
#include "text/chat_values.h"

namespace baton {

// "tools" and "tool_choice". With "none" the model is not shown the tools, so that it cannot call one.
void ReadTools(FieldReader& body, CompletionCall& call, ChatValues& values);

// "tool_calls" of an assistant's message, and fields beside it that a client sends back as it got them: null. None: the
// message has no calls.
jinja::Value ReadToolCalls(FieldReader& message);

}  // namespace baton
