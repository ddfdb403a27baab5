// `baton status`: what a router tells of its workers, once, or again and again.
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

// "ready", "draining" (it shuts down and takes nothing new) or "gone" (not attached, or not yet).
const char* StateOf(const v1::Worker& worker);
// Foreign text in it is made printable.
std::string StatusText(const std::string& address, const v1::GetServerInfoResponse& info);

struct TerminalSize {
  size_t rows = 0, columns = 0;
};
struct StatusWatch {
  std::string address;  // of the router
  std::function<absl::StatusOr<v1::GetServerInfoResponse>()> ask;
  std::function<absl::Time()> now;
  std::function<std::optional<TerminalSize>()> terminal;  // of what is written to; nothing: it is none
  std::function<bool()> pause;                            // until the next answer is wanted; false: none is
};
// Shows one answer after the other: in the same place of a terminal, which is left as it was but for them; elsewhere
// one below the other. A router that is not there for a while is waited for, once there was an answer. Errors: any
// other of `ask`. OK: no further answer is wanted, or nobody reads `out` any more.
absl::Status WatchStatus(const StatusWatch& watch, std::ostream& out);

}  // namespace baton
