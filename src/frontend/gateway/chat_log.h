// Counts and logs differences between a chat as sent and a chat as served.
#pragma once

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

  // Takes the parts that a text replaced in a chat. Logs at most one line every 10 s.
  void OnRead(const MediaCounts& left_out);
  // Takes the calls of a whole answer.
  void OnAnswer(const StrictCalls& calls);

 private:
  const Clock& clock_;
  ChatCounts counts_;
  LogLimit limit_{};
};

}  // namespace baton
