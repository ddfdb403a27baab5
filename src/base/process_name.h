// Names of processes, by which one process can watch for the end of another one of its machine.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace baton {

// Returns a text that names this process among all processes of all machines, past and present. The
// text has the machine's boot id, the PID namespace, the PID and the process's start time. Returns
// an empty text if the system does not provide these.
std::string OwnProcessName();

// Opens the process with this name. The caller must close the descriptor. It polls as readable as
// soon as the process has ended with all of its threads, even if no parent has waited for it.
// - NOT_FOUND: the process has ended, or never existed.
// - FAILED_PRECONDITION: the process cannot be seen, because it is on another machine or in another
//   PID namespace, or because this system cannot open processes.
// - INVALID_ARGUMENT: `name` is not a name of a process.
absl::StatusOr<int> OpenProcess(const std::string& name);

}  // namespace baton
