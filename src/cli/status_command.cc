#include "cli/status_command.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/strings.h"
#include "cli/printable.h"
#include "cli/router_call.h"
#include "rpc/grpc_deadline.h"
#include "rpc/grpc_status.h"

namespace baton {
namespace {

// Time limit for a router that accepts calls but does not answer.
constexpr absl::Duration kCallTimeout = absl::Seconds(5);

absl::StatusOr<v1::GetServerInfoResponse> Ask(v1::Inference::Stub& stub, const ServerOptions& server,
                                              absl::Duration& retry_after, absl::Duration timeout) {
  grpc::ClientContext context;
  Authorize(context, server);
  context.set_deadline(DeadlineAfter(timeout));
  v1::GetServerInfoResponse info;
  const grpc::Status status = stub.GetServerInfo(&context, {}, &info);
  retry_after = RetryAfterOf(context);
  if (!status.ok()) return Explain(FromGrpc(status), server);
  return info;
}

std::optional<TerminalSize> SizeOfStdout() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return std::nullopt;
  return TerminalSize{.rows = size.ws_row, .columns = size.ws_col};
}

// Returns whether a later call may succeed. A router that shuts down cancels its calls, and one
// that crashes may send half an answer. Most errors may therefore be temporary.
bool IsTemporary(const absl::Status& status) {
  return !absl::IsUnauthenticated(status) && !absl::IsPermissionDenied(status) && !absl::IsUnimplemented(status) &&
         !absl::IsInvalidArgument(status);
}

// Returns the output that draws `text` over the previous text without scrolling. Lines are cut to
// the terminal's width unless the width is unknown (0).
std::string OnTerminal(const std::string& text, const TerminalSize& size) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  if (size.rows > 2 && lines.size() > size.rows - 1) {
    const size_t shown = size.rows - 2;
    const std::string rest = absl::StrCat("... and ", lines.size() - shown, " more lines");
    lines.resize(shown);
    lines.push_back(rest);
  }
  std::string frame = "\x1b[H";
  for (const std::string& line : lines) {
    frame += StrCat("\x1b[K", FirstCharacters(line, size.columns > 0 ? size.columns : line.size()), "\n");
  }
  return frame + "\x1b[J";
}

}  // namespace

const char* StateOf(const v1::Worker& worker) {
  if (worker.attached()) {
    if (worker.draining()) return "draining";
    if (worker.drained()) return "drained";
    for (const char* health : {"silent", "hung", "returning"}) {
      if (worker.health() == health) return health;
    }
    return "ready";
  }
  return absl::StartsWith(worker.problem(), "refused: ") ? "refused" : "gone";
}

std::string StatusText(const std::string& address, const v1::GetServerInfoResponse& info) {
  std::ostringstream out;
  out << "baton " << Printable(info.version()) << " at " << address << ": " << info.live_requests()
      << " live requests, " << info.waiting_requests() << " of them waiting for a worker or for room\n"
      << info.active_sessions() << " sessions active, " << info.waiting_sessions() << " waiting; "
      << info.cached_tokens() << " of " << info.prompt_tokens() << " prompt tokens were cached; "
      << info.completion_tokens() << " tokens generated\n";
  size_t longest = 22;
  for (const v1::Worker& worker : info.workers()) longest = std::clamp(worker.address().size(), longest, size_t{64});
  const auto row = [&out, width = static_cast<int>(longest) + 2](
                       const auto& role, const auto& where, const auto& state, const auto& model, const auto& running,
                       const auto& queued, const auto& tokens, const auto& blocks) {
    out << std::left << std::setw(9) << role << std::setw(width) << where << std::setw(10) << state << std::setw(28)
        << model << std::right << std::setw(8) << running << std::setw(8) << queued << std::setw(10) << tokens << "  "
        << std::left << blocks << "\n";
  };
  row("role", "address", "state", "model", "running", "queued", "tokens", "blocks free+cached/total");
  for (const v1::Worker& worker : info.workers()) {
    row(worker.role() == v1::Worker::ROLE_PREFILL ? "prefill" : "decode", Printable(worker.address()), StateOf(worker),
        Printable(worker.model()), worker.running_requests(), worker.queued_requests(), worker.queued_tokens(),
        StrCat(worker.blocks_free(), "+", worker.blocks_cached(), "/", worker.blocks_total()));
    if (worker.blocks_quarantined() > 0) {
      out << "         " << worker.blocks_quarantined()
          << " blocks are in quarantine, because a prefill worker may still write them\n";
    }
    if (!worker.health_reason().empty()) out << "         " << Printable(worker.health_reason()) << "\n";
    if (!worker.problem().empty()) out << "         " << Printable(worker.problem()) << "\n";
  }
  return out.str();
}

absl::Status WatchStatus(const StatusWatch& watch, std::ostream& out) {
  bool first = true;
  do {
    const absl::StatusOr<v1::GetServerInfoResponse> info = watch.ask();
    if (!info.ok() && (first || !IsTemporary(info.status()))) return info.status();
    const std::string text =
        StrCat(absl::FormatTime("%Y-%m-%d %H:%M:%S", watch.now(), absl::LocalTimeZone()), "\n",
               info.ok() ? StatusText(watch.address, *info) : Printable(Message(info.status())) + "\n");
    const std::optional<TerminalSize> terminal = watch.terminal();
    if (first && terminal) out << "\x1b[2J";
    if (!first && !terminal) out << "\n";
    out << (terminal ? OnTerminal(text, *terminal) : text) << std::flush;
    first = false;
  } while (out && watch.pause());
  return absl::OkStatus();
}

void AddStatusFlags(CLI::App& app, StatusOptions& o) {
  AddServerFlags(app, o.server);
  app.add_flag("--watch{2}", o.watch, "repeat every N seconds (--watch=0.5; default 2), until Ctrl-C")
      ->check(CLI::Range(0.1, 3600.0));
}

int RunStatus(const StatusOptions& options) {
  const auto stub = Connect(options.server);
  absl::Duration retry_after;
  double seconds = 0;
  const auto ask = [&](absl::Duration timeout) { return Ask(*stub, options.server, retry_after, timeout); };
  if (!absl::SimpleAtod(options.watch, &seconds)) {
    const auto info = ask(absl::InfiniteDuration());
    if (!info.ok()) return PrintError(info.status(), retry_after);
    std::cout << StatusText(options.server.address, *info);
    return 0;
  }
  const absl::Status status = WatchStatus({.address = options.server.address,
                                           .ask = [&] { return ask(kCallTimeout); },
                                           .now = absl::Now,
                                           .terminal = SizeOfStdout,
                                           .pause =
                                               [&] {
                                                 absl::SleepFor(absl::Seconds(seconds));
                                                 return true;
                                               }},
                                          std::cout);
  return status.ok() ? 0 : PrintError(status, retry_after);
}

}  // namespace baton
