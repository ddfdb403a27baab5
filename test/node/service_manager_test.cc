#include "node/service_manager.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "catch.h"
#include "notify_socket.h"
#include "temp_dir.h"

namespace baton {
namespace {

// Returns the result of FindServiceManager under these variables.
ServiceManager Find(const std::map<std::string, std::string>& environment) {
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  const ServiceManager manager = FindServiceManager();
  for (const auto& [name, value] : environment) unsetenv(name.c_str());
  return manager;
}

TEST_CASE("Notify reaches a service manager at a path or an abstract name") {
  const TempDir directory;
  for (const std::string& name : {directory / "notify", "@" + directory.path()}) {
    INFO(name);
    const NotifySocket manager(name);
    CHECK(Notify({.socket = name}, "READY=1").ok());
    CHECK(manager.Next() == "READY=1");
  }
}

TEST_CASE("Notify does nothing without a service manager") {
  CHECK(Notify({}, "READY=1").ok());
  CHECK(Find({}).socket.empty());
  CHECK(StartWatchdogNotifier({.watchdog = std::chrono::seconds(1)}, [] {}) == nullptr);
}

TEST_CASE("Notify returns an error when a socket's name is malformed or has no reader") {
  const TempDir directory;
  for (const std::string& name : {std::string("relative"), std::string("@"), "/" + std::string(108, 'x')}) {
    const absl::Status status = Notify({.socket = name}, "READY=1");
    CHECK(absl::IsInvalidArgument(status));
    CHECK(Message(status).find(name) != std::string::npos);
  }
  CHECK(absl::IsUnavailable(Notify({.socket = directory / "nobody"}, "READY=1")));
}

TEST_CASE("FindServiceManager uses the watchdog's interval for its own process only") {
  const std::string self = absl::StrCat(getpid()), other = absl::StrCat(getpid() + 1);
  CHECK(Find({{"NOTIFY_SOCKET", "@n"}, {"WATCHDOG_USEC", "2000000"}}).watchdog == std::chrono::seconds(2));
  CHECK(Find({{"WATCHDOG_USEC", "5"}, {"WATCHDOG_PID", self}}).watchdog.count() == 5);
  CHECK(Find({{"WATCHDOG_USEC", "5"}, {"WATCHDOG_PID", other}}).watchdog.count() == 0);
  CHECK(Find({{"WATCHDOG_USEC", "soon"}}).watchdog.count() == 0);
  CHECK(Find({{"WATCHDOG_USEC", "-5"}}).watchdog.count() == 0);
}

TEST_CASE("KeepWatchdogQuiet reports a process only while the process answers") {
  const TempDir directory;
  const NotifySocket socket(directory / "notify");
  std::promise<void> hangs, goes_on;
  bool first = true;
  const auto watchdog =
      StartWatchdogNotifier({.socket = directory / "notify", .watchdog = std::chrono::milliseconds(30)}, [&] {
        if (!std::exchange(first, false)) return;
        hangs.set_value();
        goes_on.get_future().wait();
      });
  hangs.get_future().wait();
  // A wrong watchdog would report within this time.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(socket.Empty());
  goes_on.set_value();
  CHECK(socket.Next() == "WATCHDOG=1");
  CHECK(socket.Next() == "WATCHDOG=1");
}

}  // namespace
}  // namespace baton
