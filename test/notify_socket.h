// The service manager's end of sd_notify(3), for tests.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

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

  // Waits for the next datagram.
  std::string Next() const {
    char buffer[256];
    const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
    BATON_CHECK(n >= 0, "a datagram is received");
    return std::string(buffer, static_cast<size_t>(n));
  }
  // Whether no datagram is waiting.
  bool Empty() const {
    char byte;
    return recv(fd_, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0;
  }

 private:
  const int fd_;
};

}  // namespace baton
