// A chat's tools, and the calls of them in earlier messages.
#pragma once

#include "frontend/openai/completion_call.h"
#include "frontend/openai/field_reader.h"
#include "inference.pb.h"

namespace baton {

// "tools" and "tool_choice". With "none" the model is not shown the tools, so that it cannot call one.
void ReadTools(FieldReader& body, CompletionCall& call, v1::Chat& chat);

// "tool_calls" of an assistant's message, and fields beside it that a client sends back as it got them: null.
void ReadToolCalls(FieldReader& message, v1::ChatMessage& out);

}  // namespace baton
