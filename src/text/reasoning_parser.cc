#include "text/reasoning_parser.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/partial_tag.h"

namespace baton {
ReasoningParser::ReasoningParser(Thinking thinking)
    : stage_(thinking == Thinking::kBegun ? Stage::kReasoning : Stage::kStart) {
  BATON_CHECK(thinking != Thinking::kNone, "a parser needs a model that may think");
}

bool ReasoningParser::Begins() {
  const size_t first = std::min(held_.find_first_not_of(kSpace), held_.size());
  const std::string_view rest = std::string_view(held_).substr(first);
  if (rest.starts_with(kThinkBegin)) {
    held_.erase(0, first + kThinkBegin.size());
    stage_ = Stage::kReasoning;
  } else if (!kThinkBegin.starts_with(rest)) {
    stage_ = Stage::kContent;
  }
  return stage_ != Stage::kStart;
}

ThinkingAnswer ReasoningParser::Push(std::string_view text) {
  ThinkingAnswer answer;
  held_ += text;
  if (stage_ == Stage::kStart && !Begins()) return answer;
  if (stage_ == Stage::kReasoning) {
    const size_t end = held_.find(kThinkEnd);
    const bool over = end != std::string::npos;
    const size_t known = over ? end : held_.size() - CutOff(held_, kThinkEnd);
    answer.reasoning = held_.substr(0, known);
    held_.erase(0, over ? end + kThinkEnd.size() : known);
    if (over) stage_ = Stage::kContent;
  }
  if (stage_ == Stage::kContent) answer.content = std::exchange(held_, "");
  return answer;
}

ThinkingAnswer ReasoningParser::Finish() {
  ThinkingAnswer answer;
  (stage_ == Stage::kReasoning ? answer.reasoning : answer.content) = std::exchange(held_, "");
  return answer;
}

std::vector<std::string> ReasoningParser::marks() { return {std::string(kThinkBegin), std::string(kThinkEnd)}; }

}  // namespace baton
