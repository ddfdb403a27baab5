// The memory that the machine and its limits leave to this process.
#pragma once

#include <cstdint>
#include <string>

namespace baton {

// The end of an error message about too little memory.
inline constexpr char kMemoryRemedy[] =
    ". Lower a worker's --kv-memory-mb or --kv-host-mb, or raise the limits on memory: ulimit -v, memory.max of the "
    "control group";

struct MemoryLimit {
  int64_t bytes = 0;
  std::string source;  // words before a number, such as "this machine's memory of"
};

// Returns the least limit on memory of this process's control groups, version 1 or 2, and their
// parents. Returns INT64_MAX if there is none. `membership` is the content of /proc/self/cgroup,
// and `root` is the directory /sys/fs/cgroup.
int64_t ControlGroupMemory(const std::string& membership, const std::string& root);

// Returns the least of the machine's memory, the control groups' limit and the remaining address
// space.
MemoryLimit LeastMemory(int64_t machine, int64_t control_group, int64_t address_space);

// Returns the limit of this process at this moment. Mapped files count against the address space.
MemoryLimit FindMemoryLimit();

}  // namespace baton
