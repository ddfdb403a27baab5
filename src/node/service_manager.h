// Notifications to systemd, by the protocol of sd_notify(3).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/periodic_task.h"

namespace baton {

struct ServiceManager {
  // A path, or "@" and the name of an abstract socket. Empty if there is no service manager.
  std::string socket{};
  // systemd restarts the process after this long without a notification. 0 disables the watchdog.
  std::chrono::microseconds watchdog{0};
};

// Reads the variables that systemd sets in the environment.
ServiceManager FindServiceManager();

// Sends one state, e.g. "READY=1". Does nothing without a service manager. Returns INVALID_ARGUMENT
// if the socket's name is malformed. Returns UNAVAILABLE if sending failed.
absl::Status Notify(const ServiceManager& manager, const std::string& state);

// Notifies the watchdog three times per interval, each time after `check_alive` has returned.
// Returns null if there is no watchdog. If `check_alive` blocks, systemd restarts the process.
std::unique_ptr<PeriodicTask> StartWatchdogNotifier(const ServiceManager& manager, std::function<void()> check_alive);

}  // namespace baton
