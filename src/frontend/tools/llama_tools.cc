#include "frontend/tools/llama_tools.h"

#include <algorithm>
#include <utility>

#include "text/partial_tag.h"

namespace baton {
namespace {

constexpr std::string_view kTag = "<|python_tag|>";
constexpr std::string_view kBetweenCalls = " \t\r\n;,";

}  // namespace

bool LlamaTools::TakeBetween(ParsedAnswer& answer) {
  const size_t next = std::min(held_.find_first_not_of(made_call_ ? kBetweenCalls : kSpace), held_.size());
  skipped_ += held_.substr(0, next);
  held_.erase(0, next);
  if (held_.empty()) return false;
  if (held_.starts_with(kTag)) {
    skipped_ += kTag;
    held_.erase(0, kTag.size());
    return true;
  }
  if (kTag.starts_with(held_)) return false;  // the tag may be incomplete
  if (held_.front() == '{') {
    state_ = State::kObject;
    call_.emplace(names_, CallReader::UnknownName::kIsText);
    return true;
  }
  answer.content += std::exchange(skipped_, "");
  state_ = State::kText;
  return true;
}

bool LlamaTools::TakeObject(ParsedAnswer& answer) {
  held_.erase(0, call_->Push(held_, answer));
  if (!call_->over()) return false;
  LeaveObject(answer);
  return true;
}

void LlamaTools::LeaveObject(ParsedAnswer& answer) {
  if (call_->is_call()) {
    skipped_.clear();
    made_call_ = true;
    state_ = State::kBetween;
  } else {
    answer.content += std::exchange(skipped_, "");
    answer.content += call_->text();
    state_ = State::kText;
  }
  call_.reset();
}

bool LlamaTools::TakeText(ParsedAnswer& answer) {
  const size_t tag = held_.find(kTag);
  const bool found = tag != std::string::npos;
  const size_t shown = found ? tag : held_.size() - CutOff(held_, kTag);
  answer.content += held_.substr(0, shown);
  held_.erase(0, shown);
  if (found) state_ = State::kBetween;
  return found;
}

ParsedAnswer LlamaTools::Push(std::string_view text) {
  ParsedAnswer answer;
  held_ += text;
  bool more = !held_.empty();
  while (more) {
    switch (state_) {
      case State::kBetween:
        more = TakeBetween(answer);
        break;
      case State::kObject:
        more = TakeObject(answer);
        break;
      case State::kText:
        more = TakeText(answer);
        break;
    }
  }
  return answer;
}

ParsedAnswer LlamaTools::Finish() {
  ParsedAnswer answer;
  if (call_) {
    call_->End(answer);
    LeaveObject(answer);
  }
  const std::string rest = std::exchange(skipped_, "") + std::exchange(held_, "");
  const bool separators = made_call_ && rest.find_first_not_of(kBetweenCalls) == std::string::npos;
  if (!separators) answer.content += rest;
  return answer;
}

std::vector<std::string> LlamaTools::marks() const { return {std::string(kTag)}; }

}  // namespace baton
