#include "text/output_text.h"

namespace baton {

std::string OutputText::Show(std::string_view text) {
  made_ += std::ssize(text);
  return stop_matcher_.Push(text);
}

void OutputText::DropReleased() {
  names_.erase(names_.begin(), names_.begin() + static_cast<std::ptrdiff_t>(released_));
  released_ = 0;
}

std::string OutputText::Push(TokenId id) {
  DropReleased();
  stop_matcher_.set_paused(before_stops_ > 0);
  if (before_stops_ > 0) --before_stops_;
  std::string text = Show(detokenizer_.Push(id));
  if (tokenizer_.IsSpecial(id) && !stopped()) {
    names_.push_back({id, made_});
    text += stop_matcher_.PushName(tokenizer_.TokenBytes(id));
  }
  ReleaseNames();
  return text;
}

std::string OutputText::Finish() {
  DropReleased();
  std::string text = Show(detokenizer_.Finish());
  text += stop_matcher_.Finish();
  ReleaseNames();
  return text;
}

}  // namespace baton
