// One HTTP call of /v1/completions or /v1/chat/completions, read and checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "frontend/openai/tool_format.h"
#include "inference.pb.h"
#include "model/served_model.h"
#include "text/chat_values.h"

namespace baton {

// A prompt that the client expects to submit next.
struct PrefillHint {
  v1::GenerateRequest request;  // without output
  ChatValues values{};          // of its chat
};

struct CompletionCall {
  // One for each prompt. Each prompt has `samples` choices, whose seeds count up from the prompt's own seed. Sample s
  // of prompt p is choice p * samples + s.
  std::vector<v1::GenerateRequest> requests{};
  ChatValues values{};                 // of a chat, which has one element in `requests`
  const ServedModel* model = nullptr;  // as long as the models that it was found in
  int32_t samples = 1;                 // of each prompt
  bool chat = false;
  bool stream = false;
  bool include_usage = false;             // a last chunk reports it
  std::vector<std::string> echo{};        // the text of each prompt, which its answers begin with; empty: they do not
  std::optional<int32_t> logprobs{};      // of the likeliest tokens too, so many; unset: none at all
  ToolFormat tools = ToolFormat::kNone;   // in which the model writes its calls
  std::vector<std::string> tool_names{};  // that it may call
  bool one_tool_call = false;             // of several calls in an answer the first is all that is shown
  // Their references have no name and mean this call's output. Only a call with one choice has them.
  std::vector<PrefillHint> followers{};
  absl::Duration timeout = absl::InfiniteDuration();  // from its arrival; then it is DEADLINE_EXCEEDED

  size_t choices() const { return requests.size() * static_cast<size_t>(samples); }
};

inline constexpr int64_t kMaxTimeoutMs = int64_t{365} * 24 * 3600 * 1000;
inline constexpr int32_t kMaxSamples = 16;
inline constexpr size_t kMaxChoices = 128;
inline constexpr size_t kMaxFollowers = 4;
inline constexpr int kMaxOutputs = 16;  // in a follower's messages

}  // namespace baton
