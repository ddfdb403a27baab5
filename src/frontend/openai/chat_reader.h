// What a client posts to /v1/chat/completions.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/openai/completion_call.h"
#include "frontend/openai/field_reader.h"
#include "inference.pb.h"
#include "text/chat_values.h"

namespace baton {

// Errors as ReadCompletion's. INVALID_ARGUMENT too: tools for a model whose format of calls is not known.
absl::StatusOr<CompletionCall> ReadChat(const Json& body, const ServedModels& models);

// What may stand for an output in a message's content.
enum class Outputs {
  kNamed,  // {"type": "output_of", "output_of": ...}: another call's
  kOwn,    // {"type": "output"}: that of the call which says what follows it; its name is left out
};

// "messages". A developer's message is passed on as the system's, which is what templates know. Calls of tools are
// refused where the model's template would leave them out; a name is passed on, and few templates tell it.
void ReadMessages(FieldReader& body, const ServedModel& model, Outputs outputs, v1::Chat& chat, ChatValues& values);

// "chat_template_kwargs".
void ReadTemplateKwargs(FieldReader& body, ChatValues& values);

}  // namespace baton
