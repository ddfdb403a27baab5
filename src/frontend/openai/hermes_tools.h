// Tool calls as Qwen and Hermes write them: <tool_call>{"name": ..., "arguments": {...}}</tool_call>
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "frontend/openai/tool_parser.h"

namespace baton {

// Any number of calls, with text before and between them. A call that the answer ends in without its end tag counts if
// it is whole: the tag may be the token after which the model stops.
class HermesTools final : public ToolParser {
 public:
  ParsedAnswer Push(std::string_view text) override;
  ParsedAnswer Finish() override;
  std::vector<std::string> marks() const override;

 private:
  bool TakeText(ParsedAnswer& answer);  // up to a call; whether there is one
  bool TakeCall(ParsedAnswer& answer);  // whether it is complete
  void AddText(std::string_view text, ParsedAnswer& answer);

  std::string held_;  // not yet known; in a call: it begins with its tag
  bool in_call_ = false;
  size_t searched_ = 0;      // of held_, in which no end tag begins
  bool after_call_ = false;  // nothing but white space came since a call
};

}  // namespace baton
