// What systemd is told of this process, where systemd started it: the protocol of sd_notify(3).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/periodic_task.h"

namespace baton {

struct ServiceManager {
  std::string socket{};                   // a path, or '@' and a name that is no file; empty: there is no manager
  std::chrono::microseconds watchdog{0};  // it restarts us if it hears nothing for so long; 0: it does not watch
};

// From the environment that systemd sets.
ServiceManager FindServiceManager();

// Sends one state, e.g. "READY=1"; without a manager does nothing. INVALID_ARGUMENT: the socket's name is none.
// UNAVAILABLE: it could not be sent.
absl::Status Notify(const ServiceManager& manager, const std::string& state);

// Tells the manager three times in its interval that we live, each time once `check_alive` has returned; null if it
// does not watch. A call that never returns is what the manager restarts us for.
std::unique_ptr<PeriodicTask> KeepWatchdogQuiet(const ServiceManager& manager, std::function<void()> check_alive);

}  // namespace baton
