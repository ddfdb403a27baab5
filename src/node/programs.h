// The programs, each until its shutdown. The mains parse flags and call these.
#pragma once

#include "absl/status/status.h"
#include "node/options.h"
#include "node/shutdown.h"

namespace baton {

absl::Status RunRouter(const RouterOptions& options, const ReadAgain& read_again, ShutdownSignal& signal);
absl::Status RunPrefill(WorkerOptions options, ShutdownSignal& signal);
absl::Status RunDecode(WorkerOptions options, ShutdownSignal& signal);
// All roles in this process.
absl::Status RunServe(ServeOptions options, ShutdownSignal& signal);

}  // namespace baton
