// Calls and writers for tests of answers.
#pragma once

#include <string>

#include "frontend/openai/completion_writer.h"
#include "frontend/openai/openai_model.h"

namespace baton {

inline CompletionCall AnswerCall(bool chat, bool stream, size_t prompts = 1) {
  CompletionCall call;
  call.requests.resize(prompts);
  call.chat = chat;
  call.stream = stream;
  return call;
}

inline CompletionWriter AnswerWriter(const CompletionCall& call, const char* model = "plain") {
  return CompletionWriter(call, **TestModels().Find(model), "7", absl::FromUnixSeconds(1000));
}

}  // namespace baton
