// The service manager's end of sd_notify(3), for tests.
#pragma once

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/check.h"

namespace baton {

class NotifySocket {
 public:
  // `name` as in NOTIFY_SOCKET: a path, or '@' and an abstract name.
  explicit NotifySocket(const std::string& name) : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    BATON_CHECK(bind(fd_, reinterpret_cast<const sockaddr*>(&address), length) == 0, name);
  }
  ~NotifySocket() { close(fd_); }
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;

  // The next datagram; empty if none comes in time.
  std::string Next(std::chrono::milliseconds patience = std::chrono::seconds(30)) const {
    const timeval limit{.tv_sec = patience.count() / 1000, .tv_usec = patience.count() % 1000 * 1000};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char buffer[256];
    const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
    return n < 0 ? "" : std::string(buffer, static_cast<size_t>(n));
  }

 private:
  const int fd_;
};

}  // namespace baton
