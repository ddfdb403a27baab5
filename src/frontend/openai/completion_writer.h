// Writes the answer of one call, whole or as server-sent events.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "frontend/openai/completion_call.h"
#include "frontend/openai/event_padding.h"
#include "frontend/openai/logprobs_writer.h"
#include "frontend/openai/special_marks.h"
#include "frontend/tools/tool_parser.h"
#include "request/answers.h"
#include "router/request.h"
#include "text/reasoning_parser.h"

namespace baton {

// Not thread-safe. Each choice gets its updates in order and then one End. Calls for different
// choices may interleave.
class CompletionWriter {
 public:
  // `id` is unique, and has no "cmpl-" or "chatcmpl-". The writer does not refer to `call` later.
  // The model must outlive this object.
  CompletionWriter(const CompletionCall& call, const ServedModel& model, std::string id, absl::Time created);

  // Sets the tokens of a prompt, for usage in each event and for ids of tokens. Without it, the
  // prompt counts as 0 tokens until a choice ends, and its ids are null. REQUIRES: no answer to the
  // prompt has begun.
  void SetPrompt(size_t prompt, std::span<const TokenId> tokens);
  // Sets whether the answers of a chat may contain reasoning, or begin in it. REQUIRES: no answer
  // has begun.
  void SetThinking(Thinking thinking);
  // Appends whole events ("data: {...}\n\n") to `out`. Appends nothing if the call does not stream.
  void Update(size_t choice, const TokenUpdate& update, std::string& out);
  // Ends a choice. After the last choice, appends usage, if requested, and "data: [DONE]\n\n".
  // REQUIRES: outcome.status is OK.
  void End(size_t choice, const RequestOutcome& outcome, std::string& out);
  // Appends an error as the last event of a stream. [DONE] does not follow, because it would mark
  // the answer as complete.
  static void Fail(const absl::Status& status, std::string& out);

  // Returns the choices with text so far as a JSON list, in the form of a whole answer. Choices
  // that have not ended have no finish_reason. Empty if there are none, or if the call streams.
  // REQUIRES: no Update or End follows.
  std::string TakePartial();

  bool done() const { return ended_ == choices_.size(); }  // all choices have ended
  // The calls so far of tools with `strict: true`.
  const StrictCalls& strict_calls() const { return strict_calls_; }
  // The whole answer. REQUIRES: the call does not stream, and done().
  std::string Body() const;

 private:
  struct Choice {
    // The beginning of an event, up to the text of a completion or the members of a chat's delta.
    std::string head;
    bool begun = false;
    bool updated = false;
    std::optional<LogprobsWriter> logprobs{};
    std::optional<ReasoningParser> reasoning_parser{};
    std::unique_ptr<ToolParser> tool_parser{};  // reads the text that is not reasoning
    std::optional<SpecialMarks> marks{};        // marks of both parsers
    size_t calls_made = 0;
    ToolCall call{};  // the last call so far
    // The answer so far, if the call does not stream.
    std::string reasoning{};
    std::string text{};
    std::string calls{};  // elements of a JSON list
    std::string logprobs_json{};
    std::string prompt_logprobs{};  // in vLLM's form; empty: the call does not want them
    std::string finish_reason{};
    // Final after End. Before, the first is that of SetPrompt, and the last counts updates.
    int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
    std::vector<TokenId> ids{};         // that no event or body has shown yet
    bool has_shown_prompt_ids = false;  // in an event
  };

  // Puts the same marks back into all choices. The choices share one search for stop strings.
  void FindMarks(const std::vector<std::string>& names);
  void Begin(Choice& choice, size_t index, std::string& out);
  // Pads the events of a choice from out[begin] on, if the call wants it.
  void Pad(const Choice& choice, size_t begin, std::string& out);
  void TakePrompt(Choice& choice, size_t index, const PromptLogprobs& prompt);
  // Appends the end of an event, from behind the text or the delta.
  void AppendTail(Choice& choice, std::string_view logprobs, std::string_view finish_reason, std::string& out);
  void AppendTail(Choice& choice, std::string& out);  // of a choice that continues
  // The members with ids of tokens, if the call wants them: of a choice, and of a whole answer.
  std::string ChoiceIds(size_t index, const Choice& choice, bool with_prompt) const;
  std::string AnswerIds(bool with_prompt) const;
  std::string PromptIds(size_t prompt) const;
  // Takes the text that the parsers hold back.
  void FinishText(Choice& choice, std::string& out);
  // Read takes the model's text. ReadContent takes the part of it that is not reasoning.
  void Read(Choice& choice, std::string_view text, std::string& out);
  void Show(Choice& choice, const ThinkingAnswer& answer, std::string& out);
  void ReadContent(Choice& choice, std::string_view text, std::string& out);
  void Show(Choice& choice, const ParsedAnswer& answer, std::string& out);
  void ShowReasoning(Choice& choice, std::string_view text, std::string& out);
  void ShowText(Choice& choice, std::string_view text, std::string& out);
  // Appends an event with text. `member` is its name in the delta of a chat.
  void SendText(Choice& choice, std::string_view member, std::string_view text, std::string& out);
  // Appends events for a part of a call, or the whole call to the list of calls.
  void ShowCall(Choice& choice, const CallPart& part, std::string& out);
  void SendCall(Choice& choice, std::string_view call, std::string& out);
  // Returns the choice's last call, or a part of it, with these members of its function.
  std::string CallJson(const Choice& choice, std::string_view function, bool begins) const;
  // Compares the arguments of a call with the schema of its tool.
  void CountStrict(const ToolCall& call);
  // Returns the member of a message, or of a delta, that has these calls.
  std::string Calls(std::string_view json) const;
  void AppendLastEvents(std::string& out) const;
  std::string Usage() const;
  void AppendChoice(const Choice& choice, size_t index, std::string& out) const;

  const bool chat_, stream_, include_usage_, continuous_usage_, token_ids_, one_tool_call_, legacy_calls_;
  const size_t samples_;
  const std::vector<std::string> echo_;
  const std::optional<int32_t> logprobs_, prompt_logprobs_;  // as in CompletionCall
  const std::vector<StrictTool> strict_tools_;
  const std::vector<std::string> stops_;  // stop strings, which all choices share
  const int32_t min_tokens_;              // of each choice
  const Tokenizer& tokenizer_;
  const std::string id_;
  // The members of the answer, and of each event, up to "choices".
  const std::string identity_;
  // The usual end of an event, for a choice that continues and has no log probabilities.
  const std::string plain_tail_;
  std::vector<Choice> choices_;
  std::vector<std::vector<TokenId>> prompt_ids_;  // by prompt, if the call wants them; else empty
  std::optional<EventPadding> padding_{};         // if the call wants it
  size_t ended_ = 0;
  StrictCalls strict_calls_;
};

}  // namespace baton
