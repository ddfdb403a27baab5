#include "frontend/gateway/chat_log.h"

#include <string>

#include "base/logging.h"
#include "base/strings.h"
#include "frontend/name_headers.h"

namespace baton {

ChatLog::ChatLog(Metrics& metrics, const Clock& clock) : clock_(clock), counts_(metrics.Create<ChatCounts>()) {
  for (const std::string_view kind : kMediaNames) counts_.parts_left_out.Of(std::string(kind));
  for (const std::string_view header : NameHeaders()) counts_.ignored_headers.Of(std::string(header));
}

void ChatLog::OnAdmitted(const MediaCounts& left_out) {
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

void ChatLog::OnIgnored(const std::vector<std::string_view>& headers) {
  if (headers.empty()) return;
  for (const std::string_view header : headers) counts_.ignored_headers.Increment(std::string(header));
  const auto kept_back = headers_limit_.Pass(clock_.Now());
  if (!kept_back) return;
  spdlog::warn(
      "the header {} is ignored: expected a short UTF-8 text without control characters. {} more such calls since the "
      "last such line",
      std::string(headers.front()), *kept_back);
}

void ChatLog::OnAnswer(const StrictCalls& calls) {
  counts_.matching_calls->Increment(static_cast<double>(calls.matched));
  counts_.mismatching_calls->Increment(static_cast<double>(calls.mismatched));
}

}  // namespace baton
