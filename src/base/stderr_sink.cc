#include "base/stderr_sink.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <string>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// A pipe that poll() reports as writable accepts this many bytes without blocking (pipe(7)).
constexpr size_t kMaxBytes = PIPE_BUF;

bool HasRoom(int fd) {
  pollfd asked{.fd = fd, .events = POLLOUT, .revents = 0};
  return poll(&asked, 1, /*timeout=*/0) == 1 && (asked.revents & POLLOUT) != 0;
}

}  // namespace

void StderrSink::sink_it_(const spdlog::details::log_msg& message) {
  if (!Write(message)) {
    ++dropped_;
    return;
  }
  if (dropped_ == 0) return;
  const std::string text = absl::StrCat("log lines dropped because stderr was full: ", dropped_);
  if (Write(spdlog::details::log_msg(message.logger_name, spdlog::level::warn, text))) dropped_ = 0;
}

bool StderrSink::Write(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t line;
  if (cut_) line.push_back('\n');
  formatter_->format(message, line);
  for (size_t begin = 0; begin < line.size();) {
    if (!HasRoom(fd_)) return false;
    const ssize_t written = write(fd_, line.data() + begin, std::min(line.size() - begin, kMaxBytes));
    if (written <= 0) return false;
    begin += static_cast<size_t>(written);
    cut_ = begin < line.size();
  }
  return true;
}

}  // namespace baton
