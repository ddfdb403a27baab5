// Separates a model's reasoning from its answer while they are written: <think>...</think>, then
// the answer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace baton {

inline constexpr std::string_view kThinkBegin = "<think>", kThinkEnd = "</think>";

// The thinking of an output.
enum class Thinking {
  kNone,   // everything is the answer
  kMay,    // the model's text may begin with <think> (Qwen3)
  kBegun,  // the prompt ends with <think> (QwQ, DeepSeek-R1)
};

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
  // Whether the rest of the text is the answer.
  bool answers() const { return stage_ == Stage::kContent; }
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
