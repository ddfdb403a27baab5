#include "frontend/openai/api_fields.h"

#include <iterator>

#include "base/strings.h"
#include "frontend/openai/body_readers.h"

namespace baton {
namespace {

using State = ApiField::State;

constexpr Apis kAll(Api::kCompletions, Api::kChat, Api::kPrefillHint, Api::kTokenizeText, Api::kTokenizeChat,
                    Api::kDetokenize);
constexpr Apis kGenerate(Api::kCompletions, Api::kChat);
constexpr Apis kCompletions(Api::kCompletions);
constexpr Apis kChat(Api::kChat);
constexpr Apis kMessages(Api::kChat, Api::kPrefillHint, Api::kTokenizeChat);
constexpr Apis kTokenizeText(Api::kTokenizeText);
constexpr Apis kTokenize(Api::kTokenizeText, Api::kTokenizeChat);
constexpr Apis kDetokenize(Api::kDetokenize);

// The fields that come before those of sampling. Later fields may rely on the model.
constexpr ApiField kFirstFields[] = {
    {.name = "model", .apis = kAll, .read = ReadModel},
    {.name = "n", .apis = kGenerate, .read = ReadSamples},
    {.name = "stream", .apis = kGenerate, .read = ReadStream},
    {.name = "stream_options", .apis = kGenerate, .read = ReadStreamOptions},
    {.name = "timeout_ms", .apis = kGenerate, .read = ReadTimeout},
    {.name = "session_id", .apis = kGenerate, .read = ReadRequestField},
    {.name = "request_id", .apis = kGenerate, .read = ReadRequestField},
    {.name = "cache_salt", .apis = kGenerate, .read = ReadRequestField},
    {.name = "priority", .apis = kGenerate, .read = ReadRequestField},
    {.name = "workflow", .apis = kGenerate, .read = ReadRequestField},
    {.name = "agent", .apis = kGenerate, .read = ReadRequestField},
    {.name = "expected_tokens", .apis = kGenerate, .read = ReadRequestField},
    {.name = "context_id", .apis = kGenerate, .read = ReadRequestField},
    {.name = "context_length", .apis = kGenerate, .read = ReadRequestField},
    {.name = "join", .apis = kGenerate, .read = ReadJoin},
};

constexpr ApiField kLastFields[] = {
    {.name = "user", .apis = kGenerate, .read = ReadLabel},
    {.name = "safety_identifier", .apis = kGenerate, .read = ReadLabel},
    // Has no effect: the prefix cache looks up token ids.
    {.name = "prompt_cache_key", .apis = kGenerate, .read = ReadLabel},
    {.name = "metadata", .apis = kGenerate, .read = ReadMetadata},
    {.name = "prompt_cache_retention", .apis = kGenerate, .state = State::kFixed, .value = R"("in_memory")"},
    {.name = "store", .apis = kGenerate, .state = State::kFixed, .value = "false"},
    {.name = "service_tier",
     .apis = kGenerate,
     .state = State::kFixed,
     .value = R"("auto")",
     .other_value = R"("default")"},
    {.name = "verbosity", .apis = kGenerate, .state = State::kFixed, .value = R"("medium")"},
    {.name = "logit_bias", .apis = kGenerate, .state = State::kFixed, .value = "{}"},
    {.name = "suffix", .apis = kGenerate, .state = State::kFixed, .value = R"("")"},
    {.name = "response_format", .apis = kGenerate, .state = State::kFixed, .value = R"({"type":"text"})"},
    {.name = "modalities", .apis = kGenerate, .state = State::kFixed, .value = R"(["text"])"},
    {.name = "functions", .apis = kGenerate, .state = State::kFixed, .value = "[]"},
    {.name = "function_call", .apis = kGenerate, .state = State::kFixed, .value = R"("none")"},
    {.name = "min_tokens", .apis = kGenerate, .state = State::kFixed, .value = "0"},
    {.name = "best_of", .apis = kGenerate, .read = ReadBestOf},
    {.name = "audio", .apis = kChat, .state = State::kRefused, .reason = "is not supported"},
    {.name = "prediction", .apis = kChat, .state = State::kRefused, .reason = "is not supported"},
    {.name = "reasoning_effort", .apis = kChat, .state = State::kRefused, .reason = "is not supported"},
    {.name = "web_search_options", .apis = kChat, .state = State::kRefused, .reason = "is not supported"},
    // Completions.
    {.name = "max_tokens", .apis = kCompletions, .read = ReadCompletionMaxTokens},
    {.name = "logprobs", .apis = kCompletions, .read = ReadCompletionLogprobs},
    {.name = "segments", .apis = kCompletions, .read = ReadSegments},
    {.name = "prompt", .apis = kCompletions, .read = ReadPrompt},
    {.name = "echo", .apis = kCompletions, .read = ReadEcho},
    // Chats, and bodies that are read like a chat.
    {.name = "max_tokens", .apis = kChat, .read = ReadChatMaxTokens},
    {.name = "max_completion_tokens", .apis = kChat, .read = ReadChatMaxTokens},
    {.name = "logprobs", .apis = kChat, .read = ReadChatLogprobs},
    {.name = "top_logprobs", .apis = kChat, .read = ReadTopLogprobs},
    {.name = "messages", .apis = kMessages, .read = ReadMessages},
    {.name = "tool_choice", .apis = kMessages, .read = ReadToolChoice},
    {.name = "parallel_tool_calls", .apis = kMessages, .read = ReadParallelToolCalls},
    {.name = "tools", .apis = kMessages, .read = ReadTools},
    {.name = "chat_template_kwargs", .apis = kMessages, .read = ReadTemplateKwargs},
    {.name = "followers", .apis = kChat, .read = ReadPrefillHints},
    // Tokenizers.
    {.name = "prompt", .apis = kTokenizeText, .read = ReadTokenizeText},
    {.name = "add_special_tokens", .apis = kTokenize, .read = ReadAddSpecialTokens},
    {.name = "tokens", .apis = kDetokenize, .read = ReadDetokenizeIds},
};

// Each row of SamplingFields with a JSON name is a field of completions and chats.
std::vector<ApiField> MakeTable() {
  std::vector<ApiField> table(std::begin(kFirstFields), std::end(kFirstFields));
  for (const SamplingField& field : SamplingFields()) {
    if (field.json.empty()) continue;
    table.push_back({.name = field.json, .apis = kGenerate, .read = ReadSampling, .sampling = &field});
  }
  table.insert(table.end(), std::begin(kLastFields), std::end(kLastFields));
  return table;
}

void ReadFixed(FieldReader& body, const ApiField& field) {
  const Json* value = body.Any(field.name);
  if (value == nullptr) return;
  const std::string text = value->dump();
  if (text == field.value || (!field.other_value.empty() && text == field.other_value)) return;
  body.Refuse(field.name, StrCat("expected ", field.value, ", got ", ShowJson(*value), ", which is not supported"));
}

}  // namespace

std::span<const ApiField> ApiFields() {
  static const std::vector<ApiField>& table = *new std::vector<ApiField>(MakeTable());
  return table;
}

absl::Status ReadFields(BodyDraft& draft) {
  for (const ApiField& field : ApiFields()) {
    if (!draft.body.ok()) break;
    if (!field.apis.contains(draft.api)) continue;
    switch (field.state) {
      case State::kSupported:
        field.read(draft, field);
        break;
      case State::kFixed:
        ReadFixed(draft.body, field);
        break;
      case State::kRefused:
        if (draft.body.Any(field.name) != nullptr) draft.body.Refuse(field.name, field.reason);
        break;
    }
  }
  return draft.body.Finish();
}

}  // namespace baton
