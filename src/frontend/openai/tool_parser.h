// Finds tool calls in an answer while it is written.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/openai/tool_format.h"

namespace baton {

struct ToolCall {
  std::string name;
  std::string arguments;  // a JSON object, as the model wrote it
};

struct ParsedAnswer {
  std::string content;
  std::vector<ToolCall> calls;
};

// Text that may be a call or the beginning of one is held back until it is known; what turns out to be none is content.
// So nothing is lost but what surrounds calls: their tags, and white space before, between and after them.
class ToolParser {
 public:
  virtual ~ToolParser() = default;
  // What is known with this much more of the answer.
  virtual ParsedAnswer Push(std::string_view text) = 0;
  // The answer is over: what is still held back.
  virtual ParsedAnswer Finish() = 0;
  // What its calls begin and end with: a model may have these as special tokens, which give no text.
  virtual std::vector<std::string> marks() const = 0;
};

// Null for kNone. `names`: of the tools that there are.
std::unique_ptr<ToolParser> MakeToolParser(ToolFormat format, std::vector<std::string> names);

}  // namespace baton
