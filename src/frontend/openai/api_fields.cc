#include "frontend/openai/api_fields.h"

#include <iterator>

#include "base/strings.h"
#include "frontend/openai/body_readers.h"

namespace baton {
namespace {

using State = ApiField::State;

using Read = void (*)(BodyDraft& draft, const ApiField& field);

// `note` is for docs/api-fields.md.
constexpr ApiField Supported(std::string_view name, Apis apis, Read read, std::string_view note = "") {
  return {.name = name, .apis = apis, .read = read, .note = note};
}
// A field that is accepted at a value that changes nothing, or at a second such value.
constexpr ApiField Fixed(std::string_view name, Apis apis, std::string_view value, std::string_view other_value = "") {
  return {.name = name, .apis = apis, .state = State::kFixed, .value = value, .other_value = other_value};
}
constexpr ApiField Refused(std::string_view name, Apis apis, std::string_view reason = "is not supported") {
  return {.name = name, .apis = apis, .state = State::kRefused, .reason = reason};
}

constexpr Apis kAll(Api::kCompletions, Api::kChat, Api::kPrefillHint, Api::kTokenizeText, Api::kTokenizeChat,
                    Api::kDetokenize);
constexpr Apis kGenerate(Api::kCompletions, Api::kChat);
constexpr Apis kCompletions(Api::kCompletions);
constexpr Apis kChat(Api::kChat);
constexpr Apis kMessages(Api::kChat, Api::kPrefillHint, Api::kTokenizeChat);
constexpr Apis kTokenizeText(Api::kTokenizeText);
constexpr Apis kTokenize(Api::kTokenizeText, Api::kTokenizeChat);
constexpr Apis kDetokenize(Api::kDetokenize);

constexpr std::string_view kLabel = "a text without effect";
constexpr std::string_view kNoStructure = "is not supported: output is not constrained";

// tools/make_reference reads the rows of these two tables. The fields that come before those of
// sampling. Later fields may rely on the model.
constexpr ApiField kFirstFields[] = {
    Supported("model", kAll, ReadModel),
    Supported("n", kGenerate, ReadSamples, "1 to 16"),
    Supported("stream", kGenerate, ReadStream),
    Supported("stream_options", kGenerate, ReadStreamOptions, "[members](#members-of-objects)"),
    Supported("timeout_ms", kGenerate, ReadTimeout, "the deadline"),
    Supported("session_id", kGenerate, ReadRequestField),
    Supported("request_id", kGenerate, ReadRequestField, "choice i of several has the id `request_id`-i"),
    Supported("cache_salt", kGenerate, ReadRequestField),
    Supported("priority", kGenerate, ReadRequestField, "-1000 to 1000, higher first (vLLM: lower first)"),
    Supported("workflow", kGenerate, ReadRequestField),
    Supported("workflow_limits", kGenerate, ReadWorkflowLimits, "`deadline_ms`, `max_tokens`"),
    Supported("agent", kGenerate, ReadRequestField),
    Supported("expected_tokens", kGenerate, ReadRequestField),
    Supported("context_id", kGenerate, ReadRequestField),
    Supported("context_length", kGenerate, ReadRequestField),
    Supported("join", kGenerate, ReadJoin, "`order`, `arrival`"),
    Supported("first", kGenerate, ReadRequestField, "0 to the number of `output_of`"),
    Supported("keep", kGenerate, ReadRequestField, "true if there are several choices"),
};

constexpr ApiField kLastFields[] = {
    // The prefix cache looks up token ids, so the fields of OpenAI's cache have no effect.
    Supported("user", kGenerate, ReadLabel, kLabel),
    Supported("safety_identifier", kGenerate, ReadLabel, kLabel),
    Supported("prompt_cache_key", kGenerate, ReadLabel, kLabel),
    Supported("prompt_cache_retention", kGenerate, ReadLabel, kLabel),
    Supported("prompt_cache_options", kGenerate, ReadIgnoredObject, "an object without effect"),
    Supported("metadata", kGenerate, ReadMetadata, "an object of texts without effect"),
    Supported("best_of", kGenerate, ReadBestOf, "the value of `n`"),
    // OpenAI's platform.
    Fixed("store", kGenerate, "false"),
    Fixed("service_tier", kGenerate, R"("auto")", R"("default")"),
    Fixed("verbosity", kGenerate, R"("medium")"),
    Fixed("modalities", kGenerate, R"(["text"])"),
    Refused("audio", kChat, "is not supported: this server writes text"),
    Refused("moderation", kChat, "is not supported: answers are not moderated"),
    Refused("prediction", kChat),
    Refused("web_search_options", kChat, "is not supported: this server does not search"),
    // Sampling.
    Fixed("logits_processors", kGenerate, "[]"),
    Fixed("use_beam_search", kGenerate, "false"),
    Fixed("length_penalty", kGenerate, "1"),
    Fixed("early_stopping", kGenerate, "false"),
    Refused("repetition_detection", kGenerate),
    Fixed("watermarking", kGenerate, "false"),
    // The text and the form of answers.
    Supported("response_format", kGenerate, ReadResponseFormat, "the type `text`; [members](#members-of-objects)"),
    Refused("structured_outputs", kGenerate, kNoStructure),
    Refused("structural_tag", kGenerate, kNoStructure),
    Refused("guided_json", kGenerate, kNoStructure),
    Refused("guided_regex", kGenerate, kNoStructure),
    Refused("guided_choice", kGenerate, kNoStructure),
    Refused("guided_grammar", kGenerate, kNoStructure),
    Refused("guided_decoding_backend", kGenerate, kNoStructure),
    Refused("guided_whitespace_pattern", kGenerate, kNoStructure),
    Fixed("detokenize", kGenerate, "true"),
    Fixed("skip_special_tokens", kGenerate, "true"),
    // Answers have no special tokens, so the spaces between them do not matter.
    Fixed("spaces_between_special_tokens", kGenerate, "true", "false"),
    Fixed("include_stop_str_in_output", kGenerate, "false"),
    Supported("return_tokens_as_token_ids", kGenerate, ReadTokensAsIds, "in log probabilities"),
    Supported("return_token_ids", kGenerate, ReadReturnTokenIds, "without ids of prompts with references"),
    Fixed("return_prompt_text", kChat, "false"),
    Refused("logprob_token_ids", kGenerate),
    Fixed("stream_interval", kGenerate, "1"),
    Fixed("include_reasoning", kChat, "true"),
    Supported("prompt_logprobs", kGenerate, ReadPromptLogprobs, "0 to 20, without `stream`"),
    // Prompts.
    Refused("truncate_prompt_tokens", kGenerate, "is not supported: prompts are not cut"),
    Fixed("truncation_side", kGenerate, R"("left")", R"("right")"),
    // vLLM's own parts.
    Refused("kv_transfer_params", kGenerate, "is not supported: the router chooses the workers"),
    Refused("ec_transfer_params", kGenerate, "is not supported: the router chooses the workers"),
    Fixed("routed_experts_prompt_start", kGenerate, "0"),
    // vLLM's routes that only render a prompt read these two.
    Fixed("return_token_offsets", kGenerate, "true", "false"),
    Fixed("return_mm_kwargs", kGenerate, "true", "false"),
    Fixed("vllm_xargs", kGenerate, "{}"),
    // Completions.
    Supported("max_tokens", kCompletions, ReadCompletionMaxTokens, "default 16"),
    Supported("logprobs", kCompletions, ReadCompletionLogprobs, "0 to 20; `false` for none"),
    Supported("segments", kCompletions, ReadSegments, "in place of `prompt`"),
    Supported("prompt", kCompletions, ReadPrompt),
    Supported("echo", kCompletions, ReadEcho),
    Fixed("suffix", kGenerate, R"("")"),
    Fixed("add_special_tokens", kCompletions, "true"),
    Refused("prompt_embeds", kCompletions),
    Fixed("functions", kCompletions, "[]"),
    Fixed("function_call", kCompletions, R"("none")"),
    // Chats, and bodies that are read like a chat.
    Supported("max_tokens", kChat, ReadChatMaxTokens, "default: what the prompt leaves of the context length"),
    Supported("max_completion_tokens", kChat, ReadChatMaxTokens, "the later name of `max_tokens`"),
    Supported("logprobs", kChat, ReadChatLogprobs),
    Supported("top_logprobs", kChat, ReadTopLogprobs, "0 to 20"),
    Supported("messages", kMessages, ReadMessages, "[members](#members-of-objects)"),
    Supported("tool_choice", kMessages, ReadToolChoice, "`auto`, `none`; [members](#members-of-objects)"),
    Supported("function_call", kMessages, ReadFunctionCall, "`auto`, `none`"),
    Supported("parallel_tool_calls", kMessages, ReadParallelToolCalls),
    Supported("tools", kMessages, ReadTools, "[members](#members-of-objects)"),
    Supported("functions", kMessages, ReadFunctions, "the older form of `tools`"),
    Supported("add_generation_prompt", kMessages, ReadGenerationPrompt),
    Fixed("continue_final_message", kMessages, "false"),
    Supported("chat_template_kwargs", kMessages, ReadTemplateKwargs),
    Supported("reasoning_effort", kMessages, ReadReasoningEffort,
              "`none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`"),
    Refused("chat_template", kMessages, "is not supported: the model has its template"),
    Fixed("documents", kMessages, "[]"),
    Fixed("mm_processor_kwargs", kMessages, "{}"),
    Fixed("media_io_kwargs", kMessages, "{}"),
    // The template adds special tokens.
    Fixed("add_special_tokens", kChat, "false"),
    Fixed("echo", kChat, "false"),
    Supported("followers", kChat, ReadPrefillHints, "prefill hints"),
    // Tokenizers.
    Supported("prompt", kTokenizeText, ReadTokenizeText),
    Supported("add_special_tokens", kTokenize, ReadAddSpecialTokens, "without effect on messages"),
    Fixed("return_token_strs", kTokenize, "false"),
    Supported("tokens", kDetokenize, ReadDetokenizeIds),
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
  const auto is = [&](std::string_view text) { return !text.empty() && *value == Json::parse(text); };
  if (is(field.value) || is(field.other_value)) return;
  body.Refuse(field.name,
              StrCat("expected ", field.value, field.other_value.empty() ? "" : StrCat(" or ", field.other_value),
                     ", got ", ShowJson(*value), ", which is not supported"));
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
        if (draft.body.Refused(field.name) != nullptr) draft.body.Refuse(field.name, field.reason);
        break;
    }
  }
  return draft.body.Finish();
}

}  // namespace baton
