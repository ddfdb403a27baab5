// Makes the answer of one call, whole or as server-sent events.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "frontend/openai/completion_call.h"
#include "frontend/openai/logprobs_writer.h"
#include "frontend/openai/reasoning_parser.h"
#include "frontend/openai/special_marks.h"
#include "frontend/openai/tool_parser.h"
#include "request/answers.h"
#include "router/request.h"

namespace baton {

// Not thread-safe. Each choice gets updates in their order and then one End; choices may interleave.
class CompletionWriter {
 public:
  // `id`: unique, without "cmpl-" or "chatcmpl-". Keeps nothing of the call.
  // The model must outlive this.
  CompletionWriter(const CompletionCall& call, const ServedModel& model, std::string id, absl::Time created);

  // Of a chat: where in its answers the model may think. REQUIRES: none has begun.
  void SetThinking(Thinking thinking);
  // What a stream sends: whole events ("data: {...}\n\n"), appended to `out`. Not streaming: nothing is.
  void Update(size_t choice, const TokenUpdate& update, std::string& out);
  // REQUIRES: outcome.status is OK. After the last choice: usage, if asked for, and "data: [DONE]\n\n".
  void End(size_t choice, const RequestOutcome& outcome, std::string& out);
  // An error after the stream has begun, as its last event: [DONE] would say that the answer is whole.
  static void Fail(const absl::Status& status, std::string& out);

  bool done() const { return ended_ == choices_.size(); }  // all choices have ended
  // The whole answer. REQUIRES: not streaming, and done().
  std::string Body() const;

 private:
  struct Choice {
    std::string head;  // of an event: up to the text of a completion, or the members of a chat's delta
    bool begun = false;
    std::optional<LogprobsWriter> logprobs{};
    std::optional<ReasoningParser> reasoning_parser{};
    std::unique_ptr<ToolParser> tool_parser{};  // of what is no reasoning
    std::optional<SpecialMarks> marks{};        // that the parsers look for
    size_t calls_made = 0;
    // Not streaming: the answer so far.
    std::string reasoning{};
    std::string text{};
    std::string calls{};  // elements of a JSON list
    std::string logprobs_json{};
    std::string finish_reason{};
    int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;  // once it has ended
  };

  void Begin(Choice& choice, size_t index, std::string& out);
  // A part of an event, from behind the text or the delta to its end.
  std::string Tail(std::string_view logprobs, std::string_view finish_reason) const;
  // What the model wrote; then, of that, what is no reasoning.
  void Read(Choice& choice, std::string_view text, std::string& out);
  void Show(Choice& choice, const ThinkingAnswer& answer, std::string& out);
  void ReadContent(Choice& choice, std::string_view text, std::string& out);
  void Show(Choice& choice, const ParsedAnswer& answer, std::string& out);
  void ShowReasoning(Choice& choice, std::string_view text, std::string& out);
  void ShowText(Choice& choice, std::string_view text, std::string& out);
  // An event with text; `member`: what a chat's delta calls it.
  void SendText(Choice& choice, std::string_view member, std::string_view text, std::string& out);
  // A chat's: to a delta, or to the list.
  void ShowCall(Choice& choice, const ToolCall& call, std::string& out);
  void AppendLastEvents(std::string& out) const;
  std::string Usage() const;
  void AppendChoice(const Choice& choice, size_t index, std::string& out) const;

  const bool chat_, stream_, include_usage_, one_tool_call_;
  const size_t samples_;
  const std::vector<std::string> echo_;
  const Tokenizer& tokenizer_;
  const std::string id_;
  const std::string identity_;  // of the answer and of each event: members up to "choices"
  // Streaming: what follows the text, or the delta, of a choice that goes on and has no log probabilities.
  const std::string plain_tail_;
  std::vector<Choice> choices_;
  size_t ended_ = 0;
};

}  // namespace baton
