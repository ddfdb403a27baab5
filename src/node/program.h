// What all programs do around their own work.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "node/options.h"
#include "node/shutdown.h"

namespace baton {

class Metrics;

// Sets up logging, runs, prints an error if there was one; the exit code. With --check, says that all is well.
int RunProgram(const std::string& program, const CommonOptions& options, const std::function<absl::Status()>& run);

// Warns if keys go over a network in clear text.
void WarnOfKeys(const RouterOptions& options);

// Warns if KV of this size cannot lie in shared memory: blocks would move, but slowly.
void WarnOfSharedMemory(int64_t bytes);

// Serves metrics where the options want it, and logs where.
absl::Status ServeMetrics(Metrics& metrics, const CommonOptions& options);

// What a program runs once all is ready.
struct Serving {
  std::string address;                // where it listens
  std::function<void()> check_alive;  // returns unless the process hangs; thread-safe, also while it shuts down
  std::function<void()> shutdown;
  std::function<void()> reload{};  // at SIGHUP; null: that is the end, too, unless a service manager sent it
};

// Prints "listening on HOST:PORT" to stdout, the one line that scripts wait for, waits for the end, and shuts down.
// Tells the service manager of all this, if there is one.
void RunUntilSignal(ShutdownSignal& signal, const Serving& serving);

}  // namespace baton
