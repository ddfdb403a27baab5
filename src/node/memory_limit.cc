#include "node/memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "absl/strings/str_split.h"

namespace baton {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

// Returns the number in a file of the kernel. Returns kNone for "max", and if there is no file.
int64_t NumberIn(const std::filesystem::path& file) {
  int64_t number = 0;
  return std::ifstream(file) >> number ? number : kNone;
}

// Returns the least number of the files `name` in `directory` and its parents below `root`. A
// container may lack the directory, because it sees its own group at `root`.
int64_t LeastOnPath(const std::filesystem::path& root, std::filesystem::path directory, const char* name) {
  int64_t least = NumberIn(root / name);
  for (; directory.has_relative_path(); directory = directory.parent_path()) {
    least = std::min(least, NumberIn(root / directory.relative_path() / name));
  }
  return least;
}

int64_t AddressSpaceLeft() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur > static_cast<rlim_t>(kNone)) return kNone;
  const int64_t pages = NumberIn("/proc/self/statm");  // of the whole address space
  const int64_t used = pages == kNone ? 0 : pages * sysconf(_SC_PAGESIZE);
  return std::max<int64_t>(static_cast<int64_t>(limit.rlim_cur) - used, 0);
}

}  // namespace

int64_t ControlGroupMemory(const std::string& membership, const std::string& root) {
  int64_t least = kNone;
  for (const absl::string_view line : absl::StrSplit(membership, '\n')) {
    // NUMBER:CONTROLLERS:PATH. Version 2 has no controllers here.
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (parts[1].empty()) {
      least = std::min(least, LeastOnPath(root, parts[2], "memory.max"));
    } else if (std::ranges::find(controllers, "memory") != controllers.end()) {
      least = std::min(least, LeastOnPath(root + "/memory", parts[2], "memory.limit_in_bytes"));
    }
  }
  return least;
}

MemoryLimit LeastMemory(int64_t machine, int64_t control_group, int64_t address_space) {
  const int64_t least = std::min({machine, control_group, address_space});
  if (least == machine) return {least, "this machine's memory of"};
  if (least == control_group) return {least, "the control group's limit on memory (memory.max) of"};
  return {least, "what the limit on address space (ulimit -v) leaves,"};
}

MemoryLimit FindMemoryLimit() {
  std::ostringstream membership;
  membership << std::ifstream("/proc/self/cgroup").rdbuf();
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return LeastMemory(machine, ControlGroupMemory(membership.str(), "/sys/fs/cgroup"), AddressSpaceLeft());
}

}  // namespace baton
