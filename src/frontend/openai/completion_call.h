// One HTTP call of /v1/completions or /v1/chat/completions, read and checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "frontend/openai/argument_schema.h"
#include "frontend/openai/part_reader.h"
#include "frontend/tools/tool_format.h"
#include "inference.pb.h"
#include "model/served_model.h"
#include "router/client_request.h"
#include "text/chat_values.h"

namespace baton {

// A prefill hint: a prompt that the client expects to submit next.
struct PrefillHint {
  v1::GenerateRequest request;  // without output
  ChatValues values{};          // of the hint's chat
};

// Returns the paths of fields in the bodies of OpenAI's APIs.
inline FieldPaths OpenAiPaths() {
  return {.segments = "segments",
          .messages = "messages",
          .parts = "content",
          .group_parts = "group",
          .max_tokens = "max_tokens",
          .prompt_logprobs = "prompt_logprobs",
          .sampling = JsonName};
}

// A tool with `strict: true`. The schema is not enforced. Each call is compared with it afterwards.
struct StrictTool {
  std::string name;
  ArgumentSchema schema;
};

// Returns the id of a choice's request. `id` is that of the answer. A choice of several has an id
// with its number.
inline RequestId ChoiceId(const std::string& id, size_t choice, size_t choices) {
  return choices == 1 ? id : absl::StrCat(id, "-", choice);
}

struct CompletionCall {
  // One for each prompt. Each prompt has `samples` choices. Sample s of prompt p is choice
  // p * samples + s of the call, and its seed is ChoiceSeed of the prompt's seed and s.
  std::vector<v1::GenerateRequest> requests{};
  RequestForm form{.paths = OpenAiPaths()};
  // The path of each prompt of a completion: "prompt", or "prompt[0]" in a list. Empty if the call
  // has no field `prompt`.
  std::vector<std::string> prompt_paths{};
  // The values of a chat's JSON texts. A chat has one element in `requests`.
  ChatValues values{};
  // Valid as long as the ServedModels that it was found in.
  const ServedModel* model = nullptr;
  std::string model_name{};  // as the client sent it, for the answer; empty if it sent none
  int32_t samples = 1;       // samples of each prompt
  bool chat = false;
  bool stream = false;
  bool include_usage = false;  // if set, a last chunk reports usage
  // If set, each chunk of a choice reports the usage of the choice so far.
  bool continuous_usage = false;
  bool obfuscate = false;         // if set, events are padded (EventPadding)
  bool return_token_ids = false;  // of prompts and outputs, beside the text
  // If set, log probabilities name a token by its id: "token_id:5".
  bool tokens_as_ids = false;
  // The text of each prompt, with which its answers begin. Empty if answers do not echo. A text is
  // UTF-8, except that it may end inside a character, which then begins the output's text.
  std::vector<std::string> echo{};
  // The number of likeliest tokens with a log probability. Unset if the answer has none at all.
  std::optional<int32_t> logprobs{};
  // The same for the member "prompt_logprobs" of the answer, whose form is vLLM's. An echo with
  // logprobs shows the prompt's log probabilities with those of the output.
  std::optional<int32_t> prompt_logprobs{};
  ToolFormat tools = ToolFormat::kNone;   // the format in which the model writes calls
  std::vector<std::string> tool_names{};  // tools that the model may call
  std::vector<StrictTool> strict_tools{};
  std::string reasoning_effort{};  // of a chat; empty: none is given
  // If set, the answer shows only the first of several calls.
  bool one_tool_call = false;
  // If set, the answer has "function_call" instead of "tool_calls".
  bool legacy_calls = false;
  // The number of images and other media in results of tools that a text replaced.
  MediaCounts left_out{};
  // References in the hints have no request id and mean this call's output. Only a call with one
  // choice has hints.
  std::vector<PrefillHint> prefill_hints{};
  // From the call's arrival. The call then fails with DEADLINE_EXCEEDED.
  absl::Duration timeout = absl::InfiniteDuration();

  // Returns the form of a request.
  RequestForm FormOf(size_t request) const {
    RequestForm of = form;
    if (!prompt_paths.empty()) of.paths.prompt = prompt_paths[request];
    return of;
  }
  // Returns the id under which prompts refer to a choice's output, as ChoiceId.
  RequestId IdOf(const std::string& id, size_t choice) const { return ChoiceId(id, choice, choices()); }
  size_t choices() const { return requests.size() * static_cast<size_t>(samples); }
};

inline constexpr int32_t kMaxSamples = 16;
inline constexpr size_t kMaxChoices = 128;
inline constexpr size_t kMaxPrefillHints = 4;
inline constexpr int kMaxOutputs = 16;  // references in the messages of one prefill hint

}  // namespace baton
