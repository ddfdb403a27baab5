// The programs. Each function runs until shutdown. The mains parse flags and call these functions.
#pragma once

#include "absl/status/status.h"
#include "node/options.h"
#include "node/shutdown.h"

namespace baton {

absl::Status RunRouter(const RouterOptions& options, const ReloadOptions& reload_options, ShutdownSignal& signal);
absl::Status RunPrefill(WorkerOptions options, ShutdownSignal& signal);
absl::Status RunDecode(WorkerOptions options, ShutdownSignal& signal);
// Runs all roles in this process.
absl::Status RunServe(ServeOptions options, ShutdownSignal& signal);

}  // namespace baton
