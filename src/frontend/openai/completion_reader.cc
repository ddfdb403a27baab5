#include "frontend/openai/completion_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/status.h"
#include "base/strings.h"
#include "frontend/openai/agent_fields.h"
#include "frontend/openai/body_readers.h"
#include "frontend/openai/field_reader.h"
#include "frontend/openai/request_fields.h"
#include "frontend/openai/token_text.h"
#include "text/utf8.h"

namespace baton {
namespace {

constexpr int32_t kDefaultCompletionTokens = 16;

absl::Status WrongPrompt(const std::string& path, const Json& got) {
  return WrongType(path, "a text, a list of token ids, or a list of either", got);
}

// Reads one element of a list of prompts.
absl::StatusOr<v1::Segments> ReadOnePrompt(const Json& prompt, const std::string& path, const ServedModel& model) {
  v1::Segments segments;
  v1::Segment& segment = *segments.add_segments();
  if (prompt.is_string()) {
    segment.set_text(prompt.get_ref<const std::string&>());
  } else if (prompt.is_array()) {
    RETURN_IF_ERROR(ReadTokenIds(prompt, path, model, *segment.mutable_token_ids()));
  } else {
    return WrongPrompt(path, prompt);
  }
  return segments;
}

// Reads one prompt or several. Appends their paths to `paths`.
absl::StatusOr<std::vector<v1::Segments>> ReadPrompts(const Json& prompt, const ServedModel& model,
                                                      std::vector<std::string>& paths) {
  std::vector<v1::Segments> prompts;
  const bool single = prompt.is_string() || (prompt.is_array() && !prompt.empty() && prompt[0].is_number());
  if (single) {
    ASSIGN_OR_RETURN(v1::Segments only, ReadOnePrompt(prompt, paths.emplace_back("prompt"), model));
    prompts.push_back(std::move(only));
    return prompts;
  }
  if (!prompt.is_array() || prompt.empty()) return WrongPrompt("prompt", prompt);
  if (prompt.size() > kMaxChoices) {
    return absl::InvalidArgumentError(StrCat("prompt: ", prompt.size(), " prompts, limit ", kMaxChoices));
  }
  for (size_t i = 0; i < prompt.size(); ++i) {
    ASSIGN_OR_RETURN(v1::Segments one, ReadOnePrompt(prompt[i], paths.emplace_back(ElementPath("prompt", i)), model));
    prompts.push_back(std::move(one));
  }
  return prompts;
}

absl::StatusOr<std::string> EchoOf(const v1::Segments& prompt, const ServedModel& model) {
  std::string bytes;
  for (const v1::Segment& segment : prompt.segments()) {
    if (segment.has_output_of() || segment.has_group())
      return absl::InvalidArgumentError("echo: is not supported with output_of");
    if (segment.has_text()) {
      bytes += segment.text();
    } else {
      for (const TokenId id : segment.token_ids().ids()) bytes += model.tokenizer->TokenBytes(id);
    }
  }
  // Segments may divide a character, also between the prompt and the output.
  const size_t whole = bytes.size() - CutOffSuffix(bytes);
  return ToUtf8(std::string_view(bytes).substr(0, whole)) + bytes.substr(whole);
}

}  // namespace

void ReadCompletionMaxTokens(BodyDraft& draft, const ApiField& field) {
  draft.call.form.default_max_tokens = kDefaultCompletionTokens;
  if (const auto limit = draft.body.Integer32(field.name, 0)) draft.request.mutable_sampling()->set_max_tokens(*limit);
}

void ReadCompletionLogprobs(BodyDraft& draft, const ApiField& field) {
  const Json* value = draft.body.Any(field.name);
  if (value != nullptr && *value == false) return;  // the form of chats
  draft.call.logprobs = draft.body.Integer32(field.name, 0, kMaxTopLogprobs);
  if (draft.call.logprobs) draft.request.mutable_sampling()->set_logprobs(*draft.call.logprobs);
}

void ReadSegments(BodyDraft& draft, const ApiField& field) {
  if (draft.body.Any(field.name) == nullptr) return;
  ReadSegmentList(draft.body, *draft.call.model, draft.prompts.emplace_back());
}

void ReadPrompt(BodyDraft& draft, const ApiField& field) {
  FieldReader& body = draft.body;
  const Json* prompt = body.Any(field.name);
  const bool has_segments = !draft.prompts.empty();
  if (prompt != nullptr) {
    if (has_segments) return body.Refuse("segments", "expected segments or a prompt, got both");
    auto prompts = ReadPrompts(*prompt, *draft.call.model, draft.call.prompt_paths);
    if (!prompts.ok()) return body.Check(prompts.status());
    draft.prompts = *std::move(prompts);
  } else if (!has_segments && draft.request.context_id().empty()) {
    body.Refuse(field.name, "expected a text, a list of token ids, or a list of either, got none");
  } else if (!has_segments) {
    draft.prompts.emplace_back();  // a prompt without segments continues a context as it is
  }
}

void ReadEcho(BodyDraft& draft, const ApiField& field) {
  FieldReader& body = draft.body;
  if (!body.Bool(field.name).value_or(false)) return;
  if (const std::optional<int32_t>& top = draft.call.logprobs) {
    v1::Sampling& sampling = *draft.request.mutable_sampling();
    if (!sampling.has_prompt_logprobs()) draft.call.form.paths.prompt_logprobs = field.name;
    sampling.set_prompt_logprobs(std::max(*top, sampling.prompt_logprobs()));
  }
  if (!draft.request.context_id().empty()) return body.Refuse(field.name, "is not supported with a context_id");
  for (const v1::Segments& prompt : draft.prompts) {
    auto text = EchoOf(prompt, *draft.call.model);
    if (!text.ok()) return body.Check(text.status());
    draft.call.echo.push_back(*std::move(text));
  }
}

absl::StatusOr<CompletionCall> ReadCompletion(const Json& json, const ServedModels& models) {
  FieldReader body(json, "");
  CompletionCall call;
  v1::GenerateRequest request;
  BodyDraft draft = DraftOf(Api::kCompletions, body, models, call, request);
  RETURN_IF_ERROR(ReadFields(draft));
  RETURN_IF_ERROR(MakeRequests(request, std::move(draft.prompts), call));
  return call;
}

}  // namespace baton
