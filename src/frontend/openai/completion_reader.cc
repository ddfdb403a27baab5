#include "frontend/openai/completion_reader.h"

#include <utility>

#include "base/status.h"
#include "base/strings.h"
#include "frontend/openai/agent_fields.h"
#include "frontend/openai/field_reader.h"
#include "frontend/openai/request_fields.h"
#include "frontend/openai/token_text.h"

namespace baton {
namespace {

constexpr int32_t kDefaultCompletionTokens = 16;

absl::Status WrongPrompt(const std::string& path, const Json& got) {
  return WrongType(path, "a text, a list of token ids, or a list of either", got);
}

// One element of a list of prompts.
absl::StatusOr<v1::Segments> ReadPrompt(const Json& prompt, const std::string& path, int32_t vocab) {
  v1::Segments segments;
  v1::Segment& segment = *segments.add_segments();
  if (prompt.is_string()) {
    segment.set_text(prompt.get_ref<const std::string&>());
  } else if (prompt.is_array()) {
    RETURN_IF_ERROR(ReadTokenIds(prompt, path, vocab, *segment.mutable_token_ids()));
  } else {
    return WrongPrompt(path, prompt);
  }
  return segments;
}

absl::StatusOr<std::vector<v1::Segments>> ReadPrompts(const Json& prompt, int32_t vocab) {
  std::vector<v1::Segments> prompts;
  const bool single = prompt.is_string() || (prompt.is_array() && !prompt.empty() && prompt[0].is_number());
  if (single) {
    ASSIGN_OR_RETURN(v1::Segments only, ReadPrompt(prompt, "prompt", vocab));
    prompts.push_back(std::move(only));
    return prompts;
  }
  if (!prompt.is_array() || prompt.empty()) return WrongPrompt("prompt", prompt);
  if (prompt.size() > kMaxChoices) {
    return absl::InvalidArgumentError(StrCat("prompt: ", prompt.size(), " prompts, limit ", kMaxChoices));
  }
  for (size_t i = 0; i < prompt.size(); ++i) {
    ASSIGN_OR_RETURN(v1::Segments one, ReadPrompt(prompt[i], ElementPath("prompt", i), vocab));
    prompts.push_back(std::move(one));
  }
  return prompts;
}

absl::StatusOr<std::vector<v1::Segments>> ReadPromptOrSegments(FieldReader& body, int32_t vocab, bool continues) {
  const Json* prompt = body.Any("prompt");
  const bool has_segments = body.Any("segments") != nullptr;
  if (prompt != nullptr && has_segments) {
    return absl::InvalidArgumentError("segments: expected them or a prompt, got both");
  }
  if (prompt != nullptr) return ReadPrompts(*prompt, vocab);
  if (!has_segments && !continues) {
    return absl::InvalidArgumentError("prompt: expected a text, a list of token ids, or a list of either, got none");
  }
  std::vector<v1::Segments> prompts(1);  // without segments, to continue a context as it is
  ReadSegments(body, vocab, prompts[0]);
  return prompts;
}

absl::StatusOr<std::string> EchoOf(const v1::Segments& prompt, const ServedModel& model) {
  std::string text;
  for (const v1::Segment& segment : prompt.segments()) {
    if (segment.has_output_of()) return absl::InvalidArgumentError("echo: is not supported with output_of");
    if (segment.has_text()) {
      text += segment.text();
    } else {
      const auto& ids = segment.token_ids().ids();
      text += TokensText(*model.tokenizer, {ids.data(), static_cast<size_t>(ids.size())});
    }
  }
  return text;
}

absl::Status ReadEcho(FieldReader& body, const std::vector<v1::Segments>& prompts, const v1::GenerateRequest& common,
                      CompletionCall& call) {
  if (!body.Bool("echo").value_or(false)) return absl::OkStatus();
  // What the prompt's own tokens were worth, no one computes: prefill has no LM head.
  if (call.logprobs) return absl::InvalidArgumentError("echo: is not supported with logprobs");
  if (!common.context_id().empty()) return absl::InvalidArgumentError("echo: is not supported with a context_id");
  for (const v1::Segments& prompt : prompts) {
    ASSIGN_OR_RETURN(std::string text, EchoOf(prompt, *call.model));
    call.echo.push_back(std::move(text));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CompletionCall> ReadCompletion(const Json& json, const ServedModels& models) {
  FieldReader body(json, "");
  CompletionCall call;
  ASSIGN_OR_RETURN(v1::GenerateRequest common, ReadCommon(body, models, call));
  v1::Sampling& sampling = *common.mutable_sampling();
  sampling.set_max_tokens(body.Integer32("max_tokens").value_or(kDefaultCompletionTokens));
  call.logprobs = body.Integer32("logprobs");
  if (call.logprobs) sampling.set_logprobs(*call.logprobs);
  ASSIGN_OR_RETURN(std::vector<v1::Segments> prompts,
                   ReadPromptOrSegments(body, call.model->vocab, !common.context_id().empty()));
  RETURN_IF_ERROR(ReadEcho(body, prompts, common, call));
  RETURN_IF_ERROR(body.Finish());
  RETURN_IF_ERROR(MakeRequests(common, std::move(prompts), call));
  return call;
}

}  // namespace baton
