// Finds tool calls in an answer while the answer is written.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/tools/tool_format.h"

namespace baton {

struct ToolCall {
  std::string name;
  std::string arguments;  // as the model wrote them, normally a JSON object
};

// A part of a call. The parts of one call follow each other.
struct CallPart {
  std::string name{};       // if not empty, a call begins
  std::string arguments{};  // the next text of the arguments
  bool ends = false;        // if set, the call has no further parts
};

struct ParsedAnswer {
  std::string content;
  std::vector<CallPart> calls;
};

// Text that may be a call, or the beginning of one, is held back until that is clear (CallReader).
// Text that turns out to be no call is content. Only the tags of calls, and white space before,
// between and after calls, are dropped. The parts of an answer, joined, do not depend on how its
// text is divided.
class ToolParser {
 public:
  virtual ~ToolParser() = default;
  // Takes the next text of the answer, and returns the parts that can be classified.
  virtual ParsedAnswer Push(std::string_view text) = 0;
  // Ends the answer, and returns the text that is still held back. A call that has begun ends.
  virtual ParsedAnswer Finish() = 0;
  // The texts that begin and end calls. They may be special tokens, which have no text.
  virtual std::vector<std::string> marks() const = 0;
};

// Returns null for kNone. `names` are the tools of the request.
std::unique_ptr<ToolParser> MakeToolParser(ToolFormat format, std::vector<std::string> names);

}  // namespace baton
