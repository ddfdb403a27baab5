// Reads a tool call while the model writes it as one JSON object.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/tools/call_json.h"
#include "frontend/tools/tool_parser.h"

namespace baton {

// A call begins as soon as its name is one of the request's tools and the text of its arguments
// begins with a brace. From then on the arguments are passed on as they arrive, and cannot be taken
// back. They are the bytes that the model wrote, up to the brace that ends them. If the output ends
// before that brace, or if the text is not JSON, clients see the same.
//
// An object in another order or form, such as one with its arguments before its name, is held back
// until it is whole (ReadCall).
class CallReader {
 public:
  enum class UnknownName : uint8_t {
    kIsCall,  // an object that names no tool of the request is a call
    kIsText,
  };

  // `names` are the tools of the request, and must outlive this object.
  CallReader(const std::vector<std::string>& names, UnknownName unknown) : names_(names), unknown_(unknown) {}

  // Takes text up to the end of the call, or up to the byte that shows that there is no call.
  // Appends parts of the call to `answer`. Returns the number of bytes taken, which is less than
  // the size of `text` only if over(). White space may precede the object.
  size_t Push(std::string_view text, ParsedAnswer& answer);
  // Ends the text. REQUIRES: not over().
  void End(ParsedAnswer& answer);

  bool over() const { return stage_ == Stage::kCall || stage_ == Stage::kNoCall; }
  bool is_call() const { return stage_ == Stage::kCall; }
  // The text that was taken and is not a call. REQUIRES: over() and not is_call().
  const std::string& text() const { return held_; }

 private:
  enum class Stage : uint8_t {
    kHead,       // before the arguments, or in an object that is held back
    kArguments,  // in the arguments of a call
    kTail,       // behind them, up to the end of the object
    kCall,
    kNoCall,
  };

  // Each takes text of its stage, and returns the number of bytes taken.
  size_t TakeHead(std::string_view text, ParsedAnswer& answer);
  size_t TakeArguments(std::string_view text, ParsedAnswer& answer);
  size_t TakeTail(std::string_view text);
  // Returns whether a call begins, if a brace follows held_.
  bool Begins(ParsedAnswer& answer);
  // Reads held_ as a whole object.
  void ReadWhole(ParsedAnswer& answer);
  bool IsTool(std::string_view name) const;
  // Returns whether `c`, the next byte, is the brace that ends the object or the arguments.
  bool Closes(char c, int64_t depth);

  const std::vector<std::string>& names_;
  const UnknownName unknown_;
  Stage stage_ = Stage::kHead;
  std::string held_;  // the text of kHead
  int64_t depth_ = 0;
  StringScanner strings_;
  bool tried_ = false;         // a brace followed the key of the arguments, and no call began
  bool more_members_ = false;  // in kTail: a comma followed the arguments
};

}  // namespace baton
