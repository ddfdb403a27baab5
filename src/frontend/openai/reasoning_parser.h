// Tells what a model thinks from what it answers, while it is written: <think>...</think>, then the answer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/served_model.h"

namespace baton {

enum class Thinking {
  kNone,   // all is the answer
  kMay,    // what the model writes may begin with <think> (Qwen3)
  kBegun,  // the prompt ends with it (QwQ, DeepSeek-R1)
};

// Told by the text of the chat template, which has the tags, and by the end of a prompt that it made: where thinking is
// turned off, templates write the closing tag there.
Thinking ThinkingOf(const ServedModel& model, std::string_view prompt_end);

struct ThinkingAnswer {
  std::string reasoning;
  std::string content;
};

// Nothing but the tags is left out, and white space before the first. What may be the beginning of a tag is held back.
class ReasoningParser {
 public:
  // REQUIRES: not kNone.
  explicit ReasoningParser(Thinking thinking);
  // What is known with this much more of the answer.
  ThinkingAnswer Push(std::string_view text);
  // The answer is over: what is still held back.
  ThinkingAnswer Finish();
  // Texts that may be special tokens, which an answer's text leaves out: the caller puts them back (SpecialMarks).
  static std::vector<std::string> marks();

 private:
  enum class Stage { kStart, kReasoning, kContent };
  bool Begins();  // whether what follows is known

  Stage stage_;
  std::string held_;
};

}  // namespace baton
