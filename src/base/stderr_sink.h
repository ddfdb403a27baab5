// Where the log goes: stderr, unless whoever reads it is behind.
#pragma once

#include <cstdint>
#include <mutex>

#include "spdlog/sinks/base_sink.h"

namespace baton {

// A pipe that nobody empties would stop whoever logs, and a server logs for each request. So a line for which there is
// no room is dropped; the next that has room is followed by one that says how many were.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit StderrSink(int fd = 2) : fd_(fd) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}
  bool Write(const spdlog::details::log_msg& message);

  const int fd_;
  int64_t dropped_ = 0;  // since the last line that was written
  bool cut_ = false;     // the last line has no end
};

}  // namespace baton
