// Separates a model's reasoning from its answer while they are written: <think>...</think>, then
// the answer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/served_model.h"

namespace baton {

enum class Thinking {
  kNone,   // everything is the answer
  kMay,    // the model's text may begin with <think> (Qwen3)
  kBegun,  // the prompt ends with <think> (QwQ, DeepSeek-R1)
};

// Derived from the text of the template for a chat with or without tools, which has the tags, and
// from the end of a rendered prompt. If thinking is turned off, templates end the prompt with the
// closing tag.
Thinking ThinkingOf(const ServedModel& model, bool tools, std::string_view prompt_end);

struct ThinkingAnswer {
  std::string reasoning;
  std::string content;
};

// Drops only the tags and the white space before the first tag. Text that may be the beginning of a
// tag is held back.
class ReasoningParser {
 public:
  // REQUIRES: not kNone.
  explicit ReasoningParser(Thinking thinking);
  // Takes the next text of the answer, and returns the parts that can be classified.
  ThinkingAnswer Push(std::string_view text);
  // Ends the answer, and returns the text that is still held back.
  ThinkingAnswer Finish();
  // The tags. They may be special tokens, which the answer's text leaves out. The caller puts them
  // back (SpecialMarks).
  static std::vector<std::string> marks();

 private:
  enum class Stage { kStart, kReasoning, kContent };
  // Returns whether it is clear if the answer begins with <think>.
  bool Begins();

  Stage stage_;
  std::string held_;
};

}  // namespace baton
