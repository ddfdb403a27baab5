#include "frontend/tools/call_reader.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "text/partial_tag.h"

namespace baton {
namespace {

bool IsSpace(char c) { return kSpace.find(c) != std::string_view::npos; }

std::string_view WithoutSpaceAtEnd(std::string_view text) { return text.substr(0, text.find_last_not_of(kSpace) + 1); }

// Returns whether the text ends with the key of a call's arguments and a colon.
bool EndsWithArgumentsKey(std::string_view text) {
  text = WithoutSpaceAtEnd(text);
  if (!text.ends_with(':')) return false;
  text = WithoutSpaceAtEnd(text.substr(0, text.size() - 1));
  return text.ends_with("\"arguments\"") || text.ends_with("\"parameters\"");
}

void AddArguments(std::string_view text, ParsedAnswer& answer) {
  if (answer.calls.empty() || answer.calls.back().ends) answer.calls.emplace_back();
  answer.calls.back().arguments += text;
}

void EndArguments(ParsedAnswer& answer) {
  AddArguments("", answer);
  answer.calls.back().ends = true;
}

}  // namespace

bool CallReader::IsTool(std::string_view name) const { return std::ranges::find(names_, name) != names_.end(); }

bool CallReader::Closes(char c, int64_t depth) {
  if (strings_.Covers(c)) return false;
  if (c == '{') ++depth_;
  return c == '}' && --depth_ == depth;
}

// An object with one pair of braces for the arguments shows whether the members so far make a call.
bool CallReader::Begins(ParsedAnswer& answer) {
  if (tried_ || depth_ != 1 || !EndsWithArgumentsKey(held_)) return false;
  tried_ = true;  // trying each brace would take quadratic time
  auto call = ReadCall(held_ + "{}}");
  if (!call || !IsTool(call->name)) return false;
  answer.calls.push_back({.name = std::move(call->name)});
  return true;
}

void CallReader::ReadWhole(ParsedAnswer& answer) {
  stage_ = Stage::kNoCall;
  auto call = ReadCall(held_);
  if (!call || (unknown_ == UnknownName::kIsText && !IsTool(call->name))) return;
  answer.calls.push_back({.name = std::move(call->name), .arguments = std::move(call->arguments), .ends = true});
  stage_ = Stage::kCall;
}

size_t CallReader::TakeHead(std::string_view text, ParsedAnswer& answer) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (depth_ == 0 && c != '{' && !IsSpace(c)) {
      stage_ = Stage::kNoCall;
      return i;
    }
    if (c == '{' && !strings_.in_string() && Begins(answer)) {
      stage_ = Stage::kArguments;
      return i;
    }
    held_ += c;
    if (Closes(c, 0)) {
      ReadWhole(answer);
      return i + 1;
    }
  }
  return text.size();
}

size_t CallReader::TakeArguments(std::string_view text, ParsedAnswer& answer) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (!Closes(text[i], 1)) continue;
    AddArguments(text.substr(0, i + 1), answer);
    EndArguments(answer);
    stage_ = Stage::kTail;
    return i + 1;
  }
  AddArguments(text, answer);
  return text.size();
}

// The rest of the object has nothing that a client needs. A call whose last brace is missing ends
// at the text that follows.
size_t CallReader::TakeTail(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (Closes(c, 0)) {
      stage_ = Stage::kCall;
      return i + 1;
    }
    if (more_members_ || IsSpace(c)) continue;
    if (c != ',') {
      stage_ = Stage::kCall;
      return i;
    }
    more_members_ = true;
  }
  return text.size();
}

size_t CallReader::Push(std::string_view text, ParsedAnswer& answer) {
  size_t taken = 0;
  while (taken < text.size() && !over()) {
    const std::string_view rest = text.substr(taken);
    taken += stage_ == Stage::kHead        ? TakeHead(rest, answer)
             : stage_ == Stage::kArguments ? TakeArguments(rest, answer)
                                           : TakeTail(rest);
  }
  return taken;
}

void CallReader::End(ParsedAnswer& answer) {
  BATON_CHECK(!over(), "a call ends twice");
  if (stage_ == Stage::kArguments) EndArguments(answer);
  stage_ = stage_ == Stage::kHead ? Stage::kNoCall : Stage::kCall;
}

}  // namespace baton
