#include "frontend/tools/hermes_tools.h"

#include <algorithm>
#include <utility>

#include "frontend/tools/call_json.h"
#include "text/partial_tag.h"

namespace baton {
namespace {

constexpr std::string_view kCallBegin = "<tool_call>";
constexpr std::string_view kCallEnd = "</tool_call>";

// Returns the size of `text` without white space at its end.
size_t SizeWithoutSpace(std::string_view text) {
  const size_t last = text.find_last_not_of(kSpace);
  return last == std::string_view::npos ? 0 : last + 1;
}

std::string_view WithoutSpaceAtStart(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kSpace), text.size()));
}

}  // namespace

void HermesTools::AddText(std::string_view text, ParsedAnswer& answer) {
  if (text.empty()) return;
  answer.content += text;
  after_call_ = false;
}

bool HermesTools::TakeEndTag() {
  const std::string_view rest = WithoutSpaceAtStart(held_);
  const bool found = rest.starts_with(kCallEnd);
  if (!found && kCallEnd.starts_with(rest)) return false;  // the tag may be incomplete
  if (found) held_.erase(0, held_.size() - rest.size() + kCallEnd.size());
  expects_end_tag_ = false;
  return true;
}

// White space before a possible tag is held back with the tag, because a call drops it.
bool HermesTools::TakeText(ParsedAnswer& answer) {
  if (expects_end_tag_ && !TakeEndTag()) return false;
  const std::string_view held = held_;
  const size_t tag = held.find(kCallBegin);
  const bool found = tag != std::string_view::npos;
  const size_t known = found ? tag : held.size() - CutOff(held, kCallBegin);
  const size_t shown = SizeWithoutSpace(held.substr(0, known));
  AddText(held.substr(0, shown), answer);
  held_.erase(0, shown);
  if (!found) return false;
  const size_t skipped = tag - shown + kCallBegin.size();
  skipped_ = held_.substr(0, skipped);
  held_.erase(0, skipped);
  call_.emplace(names_, CallReader::UnknownName::kIsCall);
  return true;
}

bool HermesTools::TakeCall(ParsedAnswer& answer) {
  const std::string_view held = held_;
  const size_t tag = held.find(kCallEnd);
  const bool found = tag != std::string_view::npos;
  const size_t known = found ? tag : held.size() - CutOff(held, kCallEnd);
  held_.erase(0, call_->Push(held.substr(0, known), answer));
  if (!call_->over()) {
    if (!found) return false;
    call_->End(answer);
  }
  LeaveCall(answer);
  return true;
}

void HermesTools::LeaveCall(ParsedAnswer& answer) {
  expects_end_tag_ = after_call_ = call_->is_call();
  if (!call_->is_call()) AddText(skipped_ + call_->text(), answer);
  call_.reset();
}

ParsedAnswer HermesTools::Push(std::string_view text) {
  ParsedAnswer answer;
  held_ += text;
  while (call_ ? TakeCall(answer) : TakeText(answer)) {
  }
  return answer;
}

ParsedAnswer HermesTools::Finish() {
  ParsedAnswer answer;
  std::string rest = std::exchange(held_, "");
  if (call_) {
    rest.erase(0, call_->Push(rest, answer));
    if (!call_->over()) call_->End(answer);
    LeaveCall(answer);
  }
  // The output may end inside an end tag.
  if (expects_end_tag_ && kCallEnd.starts_with(WithoutSpaceAtStart(rest))) return answer;
  if (!after_call_ || SizeWithoutSpace(rest) > 0) answer.content += rest;
  return answer;
}

std::vector<std::string> HermesTools::marks() const { return {std::string(kCallBegin), std::string(kCallEnd)}; }

}  // namespace baton
