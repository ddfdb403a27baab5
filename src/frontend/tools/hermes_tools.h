// The parser of tool calls as Qwen and Hermes write them:
//   <tool_call>{"name": ..., "arguments": {...}}</tool_call>
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "frontend/tools/tool_parser.h"

namespace baton {

// An answer may have any number of calls, with text before and between them. A last call without
// its end tag counts if its JSON is complete, because the model may stop at the tag's token.
class HermesTools final : public ToolParser {
 public:
  ParsedAnswer Push(std::string_view text) override;
  ParsedAnswer Finish() override;
  std::vector<std::string> marks() const override;

 private:
  // Takes text up to a call. Returns whether there is a call.
  bool TakeText(ParsedAnswer& answer);
  // Takes a call. Returns whether the call is complete.
  bool TakeCall(ParsedAnswer& answer);
  void AddText(std::string_view text, ParsedAnswer& answer);

  // Text that is not parsed yet. In a call, it begins with the call's tag.
  std::string held_;
  bool in_call_ = false;
  size_t searched_ = 0;      // no end tag begins in held_[0, searched_)
  bool after_call_ = false;  // only white space has followed the last call
};

}  // namespace baton
