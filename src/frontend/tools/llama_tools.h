// The parser of tool calls as Llama 3.1 and later write them:
//   {"name": ..., "parameters": {...}}, alone or after <|python_tag|>
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/tools/call_reader.h"
#include "frontend/tools/tool_parser.h"

namespace baton {

// One or more calls may stand at the beginning of the answer, or after a <|python_tag|>. White
// space, ';' or ',' separates them. An object that names no tool of the request is content. The
// text after it is content too, up to the next <|python_tag|>.
class LlamaTools final : public ToolParser {
 public:
  explicit LlamaTools(std::vector<std::string> names) : names_(std::move(names)) {}

  ParsedAnswer Push(std::string_view text) override;
  ParsedAnswer Finish() override;
  std::vector<std::string> marks() const override;

 private:
  enum class State {
    kBetween,  // before the first call or between calls: an object is a call
    kObject,   // in an object
    kText,
  };
  // Each takes the text from held_ that can be classified. Returns whether there may be more.
  bool TakeBetween(ParsedAnswer& answer);
  bool TakeObject(ParsedAnswer& answer);
  bool TakeText(ParsedAnswer& answer);
  // Ends the state kObject.
  void LeaveObject(ParsedAnswer& answer);

  const std::vector<std::string> names_;
  State state_ = State::kBetween;
  std::string held_;
  // The text before an object that may be a call: tag, white space and separators.
  std::string skipped_;
  bool made_call_ = false;
  std::optional<CallReader> call_;  // in kObject
};

}  // namespace baton
