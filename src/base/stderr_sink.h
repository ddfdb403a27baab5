// A log sink for stderr that never blocks.
#pragma once

#include <cstdint>
#include <mutex>

#include "spdlog/sinks/base_sink.h"

namespace baton {

// Drops a log line if stderr cannot take it at once. A full pipe would otherwise block every thread
// that logs, and a server logs for each request. After the next line that fits, the sink writes the
// number of dropped lines.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit StderrSink(int fd = 2) : fd_(fd) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}
  bool Write(const spdlog::details::log_msg& message);

  const int fd_;
  // Lines dropped since the last line that was written in full.
  int64_t dropped_ = 0;
  // True if the last line was cut, so that its newline is missing.
  bool cut_ = false;
};

}  // namespace baton
