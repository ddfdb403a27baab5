// A capture of the lines that all threads of a test log.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"

namespace baton {

// Replaces the default log during its lifetime. REQUIRES: no other thread logs while the
// constructor or the destructor runs.
class LogCapture {
 public:
  LogCapture() {
    auto logger = std::make_shared<spdlog::logger>("capture", sink_);
    logger->set_level(spdlog::level::info);
    spdlog::set_default_logger(std::move(logger));
  }
  ~LogCapture() { spdlog::set_default_logger(before_); }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  // Number of lines that contain `text`.
  int Count(const std::string& text) const { return sink_->Count(text); }

 private:
  class Sink final : public spdlog::sinks::base_sink<std::mutex> {
   public:
    int Count(const std::string& text) {
      const std::lock_guard lock(mutex_);
      return static_cast<int>(std::count_if(lines_.begin(), lines_.end(),
                                            [&](const std::string& line) { return absl::StrContains(line, text); }));
    }

   private:
    void sink_it_(const spdlog::details::log_msg& message) override {
      lines_.emplace_back(message.payload.data(), message.payload.size());
    }
    void flush_() override {}
    std::vector<std::string> lines_;
  };
  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  const std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
};

}  // namespace baton
