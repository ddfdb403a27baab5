#include "transport/ucx/shared_mapping.h"

#include <fcntl.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

absl::Status NotShared(std::span<const std::byte> memory, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrFormat("%d bytes at %p are not the peer's shared memory: %s", memory.size(), memory.data(), why));
}

// Returns true if the byte can be read. The kernel reads the byte, so a missing page causes an
// error instead of a signal.
bool CanRead(const std::byte* byte) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  const absl::Cleanup close_ends = [&] {
    close(ends[0]);
    close(ends[1]);
  };
  return write(ends[1], byte, 1) == 1;
}

}  // namespace

absl::Status CheckSharedMapping(std::span<const std::byte> memory) {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  if (memory.empty() || memory.size() > UINTPTR_MAX - begin) return NotShared(memory, "not a range of addresses");
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t first = 0;
    uintptr_t end = 0;
    char rights[5] = "";
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s", &first, &end, rights) != 3) continue;
    if (begin < first || begin >= end) continue;
    if (rights[1] != 'w' || rights[3] != 's') return NotShared(memory, absl::StrCat("mapped as ", rights));
    if (memory.size() > end - begin) return NotShared(memory, absl::StrCat("only ", end - begin, " are mapped"));
    if (!CanRead(&memory.back())) return NotShared(memory, "the file behind the mapping is shorter");
    return absl::OkStatus();
  }
  return NotShared(memory, "not mapped");
}

}  // namespace baton
