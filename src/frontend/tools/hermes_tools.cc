#include "frontend/tools/hermes_tools.h"

#include <algorithm>
#include <utility>

#include "frontend/tools/call_json.h"

namespace baton {
namespace {

constexpr std::string_view kCallBegin = "<tool_call>";
constexpr std::string_view kCallEnd = "</tool_call>";

// Returns the size of `text` without white space at its end.
size_t SizeWithoutSpace(std::string_view text) {
  const size_t last = text.find_last_not_of(kSpace);
  return last == std::string_view::npos ? 0 : last + 1;
}

}  // namespace

void HermesTools::AddText(std::string_view text, ParsedAnswer& answer) {
  if (text.empty()) return;
  answer.content += text;
  after_call_ = false;
}

// White space before a possible tag is held back with the tag, because a call drops it.
bool HermesTools::TakeText(ParsedAnswer& answer) {
  const std::string_view held = held_;
  const size_t tag = held.find(kCallBegin);
  const size_t known = tag == std::string_view::npos ? held.size() - CutOff(held, kCallBegin) : tag;
  const size_t shown = SizeWithoutSpace(held.substr(0, known));
  AddText(held.substr(0, shown), answer);
  in_call_ = tag != std::string_view::npos;
  held_.erase(0, in_call_ ? tag : shown);
  searched_ = kCallBegin.size();
  return in_call_;
}

bool HermesTools::TakeCall(ParsedAnswer& answer) {
  const std::string_view held = held_;
  const size_t end = held.find(kCallEnd, searched_);
  if (end == std::string_view::npos) {
    searched_ = std::max(kCallBegin.size(), held.size() - std::min(held.size(), kCallEnd.size() - 1));
    return false;
  }
  const size_t size = end + kCallEnd.size();
  if (auto call = ReadCall(held.substr(kCallBegin.size(), end - kCallBegin.size()))) {
    answer.calls.push_back(*std::move(call));
    after_call_ = true;
  } else {
    AddText(held.substr(0, size), answer);
  }
  held_.erase(0, size);
  in_call_ = false;
  return true;
}

ParsedAnswer HermesTools::Push(std::string_view text) {
  ParsedAnswer answer;
  held_ += text;
  while (in_call_ ? TakeCall(answer) : TakeText(answer)) {
  }
  return answer;
}

ParsedAnswer HermesTools::Finish() {
  ParsedAnswer answer;
  std::string rest = std::exchange(held_, "");
  if (in_call_) {
    if (auto call = ReadCall(std::string_view(rest).substr(kCallBegin.size()))) {
      answer.calls.push_back(*std::move(call));
      return answer;
    }
  }
  if (!after_call_ || SizeWithoutSpace(rest) > 0) answer.content = std::move(rest);
  return answer;
}

std::vector<std::string> HermesTools::marks() const { return {std::string(kCallBegin), std::string(kCallEnd)}; }

}  // namespace baton
