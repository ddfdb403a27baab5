// The command `baton status`, which shows a router's workers once or repeatedly.
#pragma once

#include <functional>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/cli.h"
#include "inference.pb.h"

namespace baton {

// Returns the state of a worker:
// - "draining": the worker shuts down and accepts no requests
// - "drained": an operator has drained it
// - "silent", "hung", "returning": as Worker.health
// - "ready": any other attached worker
// - "refused", "gone": the worker is not attached; the router refused it, or it is away
const char* StateOf(const v1::Worker& worker);
// Formats a status. Makes foreign text printable.
std::string StatusText(const std::string& address, const v1::GetServerInfoResponse& info);

struct TerminalSize {
  size_t rows = 0, columns = 0;
};
struct StatusWatch {
  std::string address;  // of the router
  std::function<absl::StatusOr<v1::GetServerInfoResponse>()> ask;
  std::function<absl::Time()> now;
  // Size of the terminal to which `out` writes. Nullopt if `out` is not a terminal.
  std::function<std::optional<TerminalSize>()> terminal;
  // Waits until the next answer is due. Returns false to end the watch.
  std::function<bool()> pause;
};
// Shows one answer after another until `pause` returns false or `out` fails, then returns OK. On a
// terminal, each answer overwrites the previous one. Otherwise it follows the previous one. Returns
// the error of the first call of `ask`. Later, retries after errors that may be temporary, and
// returns any other error.
absl::Status WatchStatus(const StatusWatch& watch, std::ostream& out);

}  // namespace baton
