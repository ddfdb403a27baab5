// The parts that all programs share: logging, metrics, signals and the service manager.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "node/options.h"
#include "node/shutdown.h"

namespace baton {

class Metrics;

// Names the things that --check validates in a process with a worker.
inline constexpr char kCheckedByWorkers[] = "options, model and memory";

// Sets up logging, calls `run` and prints its error. Returns the exit code. With --check, prints
// that `checked` are valid if `run` succeeded. `checked` names all that `run` checks.
int RunProgram(const std::string& program, const CommonOptions& options, const std::string& checked,
               const std::function<absl::Status()>& run);

// Logs a warning if API keys travel over a network unencrypted.
void WarnIfKeysUnencrypted(const RouterOptions& options);

// Logs a warning if `bytes` of KV do not fit into shared memory. KV blocks would still move, but
// slowly.
void WarnIfSharedMemoryShort(int64_t bytes);

// Serves metrics if the options enable them, and logs the address.
absl::Status ServeMetrics(Metrics& metrics, const CommonOptions& options);

// The functions that RunUntilSignal calls.
struct Serving {
  std::string address;  // host:port on which the program listens
  // Blocks if the process hangs. Thread-safe, also during shutdown.
  std::function<void()> check_alive;
  std::function<void()> shutdown;
  // Called at SIGHUP. If it is null, SIGHUP ends the process, unless a service manager runs the
  // process.
  std::function<void()> reload{};
};

// Prints "listening on HOST:PORT" to stdout, waits for a signal, then calls `shutdown`. The printed
// line is the one for which scripts wait. Reports readiness, liveness and shutdown to the service
// manager if there is one.
void RunUntilSignal(ShutdownSignal& signal, const Serving& serving);

}  // namespace baton
