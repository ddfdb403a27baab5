#include "frontend/gateway/chat_log.h"

#include <string>

#include "base/logging.h"
#include "base/strings.h"

namespace baton {

ChatLog::ChatLog(Metrics& metrics, const Clock& clock) : clock_(clock), counts_(metrics.Create<ChatCounts>()) {
  for (const std::string_view kind : kMediaNames) counts_.parts_left_out.Of(std::string(kind));
}

void ChatLog::OnRead(const MediaCounts& left_out) {
  std::string parts;
  for (size_t i = 0; i < left_out.size(); ++i) {
    if (left_out[i] == 0) continue;
    counts_.parts_left_out.Of(std::string(kMediaNames[i])).Increment(static_cast<double>(left_out[i]));
    parts += StrCat(parts.empty() ? "" : ", ", left_out[i], " of type ", kMediaNames[i]);
  }
  if (parts.empty()) return;
  const auto kept_back = limit_.Pass(clock_.Now());
  if (!kept_back) return;
  spdlog::warn(
      "a chat's results of tools have parts that the model cannot read: {}. A text replaces each of them. {} more "
      "such chats since the last such line",
      parts, *kept_back);
}

void ChatLog::OnAnswer(const StrictCalls& calls) {
  counts_.matching_calls->Increment(static_cast<double>(calls.matched));
  counts_.mismatching_calls->Increment(static_cast<double>(calls.mismatched));
}

}  // namespace baton
