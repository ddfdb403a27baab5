#include "node/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/strings.h"

namespace baton {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

ServiceManager FindServiceManager() {
  ServiceManager manager{.socket = Environment("NOTIFY_SOCKET")};
  // The process for which the interval is meant. Child processes inherit the variable.
  const std::string pid = Environment("WATCHDOG_PID");
  int64_t watchdog_us = 0;
  if ((pid.empty() || pid == absl::StrCat(getpid())) && absl::SimpleAtoi(Environment("WATCHDOG_USEC"), &watchdog_us) &&
      watchdog_us > 0) {
    manager.watchdog = std::chrono::microseconds(watchdog_us);
  }
  return manager;
}

absl::Status Notify(const ServiceManager& manager, const std::string& state) {
  if (manager.socket.empty()) return absl::OkStatus();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& name = manager.socket;
  if ((name[0] != '/' && name[0] != '@') || name.size() < 2 || name.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(absl::StrCat("NOTIFY_SOCKET: expected a path or @NAME of at most ",
                                                   sizeof address.sun_path - 1, " bytes, got '", name, "'"));
  }
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());

  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const absl::Cleanup close_socket = [fd] { close(fd); };
  const ssize_t sent =
      sendto(fd, state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), length);
  if (sent < 0) return absl::UnavailableError(absl::StrCat("NOTIFY_SOCKET ", name, ": ", std::strerror(errno)));
  return absl::OkStatus();
}

std::unique_ptr<PeriodicTask> StartWatchdogNotifier(const ServiceManager& manager, std::function<void()> check_alive) {
  if (manager.socket.empty() || manager.watchdog.count() == 0) return nullptr;
  const auto period = std::chrono::duration_cast<std::chrono::milliseconds>(manager.watchdog / 3);
  return std::make_unique<PeriodicTask>(period, [manager, check_alive = std::move(check_alive)] {
    check_alive();
    const absl::Status status = Notify(manager, "WATCHDOG=1");
    if (!status.ok()) spdlog::warn("{}", Message(status));
  });
}

}  // namespace baton
