// What all programs do around their own work.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/shutdown.h"

namespace baton {

// Sets up logging, runs, prints an error if there was one; the exit code. With --check, says that all is well.
int RunProgram(const std::string& program, const CommonOptions& options, const std::function<absl::Status()>& run);

// Warns if KV of this size cannot lie in shared memory: blocks would move, but slowly.
void WarnOfSharedMemory(int64_t bytes);

// Serves metrics where the options want it, and logs where.
absl::Status ServeMetrics(Metrics& metrics, const CommonOptions& options);

// Prints "listening on HOST:PORT" to stdout, the one line that scripts wait for, and waits for the end.
void RunUntilSignal(ShutdownSignal& signal, const std::string& address);

}  // namespace baton
