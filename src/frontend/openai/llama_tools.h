// Tool calls as Llama 3.1 and later write them: {"name": ..., "parameters": {...}}, alone or after <|python_tag|>
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/openai/call_json.h"
#include "frontend/openai/tool_parser.h"

namespace baton {

// Calls are at the beginning of the answer or after a <|python_tag|>, one or more, with white space, ';' or ',' between
// them. An object that names no tool of the request is content, and so is all that follows it.
class LlamaTools final : public ToolParser {
 public:
  explicit LlamaTools(std::vector<std::string> names) : names_(std::move(names)) {}

  ParsedAnswer Push(std::string_view text) override;
  ParsedAnswer Finish() override;
  std::vector<std::string> marks() const override;

 private:
  enum class State {
    kBetween,  // calls, or before the first: an object is one
    kObject,   // in it
    kText,
  };
  // Take from held_ what is known. Whether there may be more to take.
  bool TakeBetween(ParsedAnswer& answer);
  bool TakeObject(ParsedAnswer& answer);
  bool TakeText(ParsedAnswer& answer);
  bool IsTool(const ToolCall& call) const;

  const std::vector<std::string> names_;
  State state_ = State::kBetween;
  std::string held_;
  std::string skipped_;  // before the object that may be a call: tag, white space, separators
  bool made_call_ = false;
  ObjectScanner scanner_;
  size_t scanned_ = 0;  // of held_, in an object
};

}  // namespace baton
