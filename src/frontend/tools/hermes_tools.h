// The parser of tool calls as Qwen and Hermes write them:
//   <tool_call>{"name": ..., "arguments": {...}}</tool_call>
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/tools/call_reader.h"
#include "frontend/tools/tool_parser.h"

namespace baton {

// An answer may have any number of calls, with text before and between them. The end tag may be
// missing, because the model may stop at the tag's token. An end tag ends a call even inside a
// string, as in other servers.
class HermesTools final : public ToolParser {
 public:
  explicit HermesTools(std::vector<std::string> names) : names_(std::move(names)) {}

  ParsedAnswer Push(std::string_view text) override;
  ParsedAnswer Finish() override;
  std::vector<std::string> marks() const override;

 private:
  // Takes text up to a call. Returns whether there is a call.
  bool TakeText(ParsedAnswer& answer);
  // Takes the end tag of the last call. Returns whether it is clear if the tag follows.
  bool TakeEndTag();
  // Takes a call. Returns whether the call has ended.
  bool TakeCall(ParsedAnswer& answer);
  void LeaveCall(ParsedAnswer& answer);
  void AddText(std::string_view text, ParsedAnswer& answer);

  const std::vector<std::string> names_;
  std::string held_;     // text that is not parsed yet
  std::string skipped_;  // white space and the tag before call_
  std::optional<CallReader> call_;
  bool expects_end_tag_ = false;  // only white space has followed the last call's object
  bool after_call_ = false;       // only white space has followed the last call
};

}  // namespace baton
