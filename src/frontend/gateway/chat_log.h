// Counts and logs differences between a call as sent and a call as served.
#pragma once

#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log_limit.h"
#include "frontend/openai/argument_schema.h"
#include "frontend/openai/part_reader.h"
#include "metrics/metrics.h"

namespace baton {

// Thread-safe.
class ChatLog {
 public:
  // `clock` must outlive this object.
  ChatLog(Metrics& metrics, const Clock& clock);

  // Takes the parts that a text replaced in a chat that the router accepted. Logs at most one line
  // every 10 s.
  void OnAdmitted(const MediaCounts& left_out);
  // Takes the headers of a call whose values are not used. Logs as OnAdmitted does.
  void OnIgnored(const std::vector<std::string_view>& headers);
  // Takes the calls of a whole answer.
  void OnAnswer(const StrictCalls& calls);

 private:
  const Clock& clock_;
  ChatCounts counts_;
  LogLimit limit_{}, headers_limit_{};
};

}  // namespace baton
