#include "base/process_name.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace baton {
namespace {

struct ProcessName {
  std::string boot;
  uint64_t pid_namespace = 0;
  pid_t pid = 0;
  uint64_t start = 0;  // ticks since the boot
};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Reads PID and start time from the text of /proc/PID/stat: fields 1 and 22. Field 2 is the name of
// the program in parentheses, which may contain spaces and parentheses.
bool ReadStat(const std::string& path, ProcessName& name) {
  const std::string stat = ReadFile(path);
  const size_t program = stat.find(" ("), end = stat.rfind(") ");
  if (program == std::string::npos || end == std::string::npos) return false;
  const std::vector<absl::string_view> fields = absl::StrSplit(absl::string_view(stat).substr(end + 2), ' ');
  constexpr size_t kStart = 22 - 3;
  return absl::SimpleAtoi(absl::string_view(stat).substr(0, program), &name.pid) && fields.size() > kStart &&
         absl::SimpleAtoi(fields[kStart], &name.start);
}

std::optional<ProcessName> Own() {
  ProcessName own{.boot = std::string(absl::StripAsciiWhitespace(ReadFile("/proc/sys/kernel/random/boot_id")))};
  struct stat pid_namespace {};
  if (own.boot.empty() || stat("/proc/self/ns/pid", &pid_namespace) != 0) return std::nullopt;
  own.pid_namespace = pid_namespace.st_ino;
  // The PID differs if /proc belongs to another PID namespace.
  if (!ReadStat("/proc/self/stat", own) || own.pid != getpid()) return std::nullopt;
  return own;
}

std::optional<ProcessName> Parse(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  ProcessName name;
  if (parts.size() != 4 || !absl::SimpleAtoi(parts[1], &name.pid_namespace) || !absl::SimpleAtoi(parts[2], &name.pid) ||
      !absl::SimpleAtoi(parts[3], &name.start) || name.pid <= 0) {
    return std::nullopt;
  }
  name.boot = parts[0];
  return name;
}

bool HasEnded(int descriptor) {
  pollfd end{descriptor, POLLIN, 0};
  return poll(&end, 1, 0) != 0;
}

}  // namespace

std::string OwnProcessName() {
  const std::optional<ProcessName> own = Own();
  return own.has_value() ? absl::StrCat(own->boot, "/", own->pid_namespace, "/", own->pid, "/", own->start) : "";
}

absl::StatusOr<int> OpenProcess(const std::string& name) {
  const std::optional<ProcessName> process = Parse(name), own = Own();
  if (!process.has_value()) {
    return absl::InvalidArgumentError("name of a process: expected BOOT/NAMESPACE/PID/START");
  }
  if (!own.has_value() || process->boot != own->boot || process->pid_namespace != own->pid_namespace) {
    return absl::FailedPreconditionError("the process is on another machine or in another PID namespace");
  }
  const auto descriptor = static_cast<int>(syscall(SYS_pidfd_open, process->pid, 0));
  if (descriptor < 0 && errno == ESRCH) return absl::NotFoundError("the process has ended");
  if (descriptor < 0) {
    return absl::FailedPreconditionError(absl::StrCat("the process cannot be opened: ", std::strerror(errno)));
  }
  // The system may have given the PID to another process. The start time was that of the opened
  // process, because that process still has the PID afterwards.
  ProcessName opened;
  const bool same = ReadStat(absl::StrCat("/proc/", process->pid, "/stat"), opened) && opened.start == process->start;
  if (same && !HasEnded(descriptor)) return descriptor;
  close(descriptor);
  return absl::NotFoundError("the process has ended");
}

}  // namespace baton
