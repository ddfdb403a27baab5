#include "node/memory_limit.h"

#include <filesystem>
#include <limits>

#include "catch.h"
#include "temp_dir.h"

namespace baton {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

TEST_CASE("ControlGroupMemory takes the least limit of a group and its parents") {
  const TempDir root;
  std::filesystem::create_directories(root / "a/b");
  CHECK(ControlGroupMemory("0::/a/b\n", root.path()) == kNone);
  root.Write("a/b/memory.max", "max\n");
  CHECK(ControlGroupMemory("0::/a/b\n", root.path()) == kNone);
  root.Write("a/memory.max", "3000\n");
  CHECK(ControlGroupMemory("0::/a/b\n", root.path()) == 3000);
  root.Write("a/b/memory.max", "2000\n");
  CHECK(ControlGroupMemory("0::/a/b\n", root.path()) == 2000);
  CHECK(ControlGroupMemory("0::/a\n", root.path()) == 3000);
}

TEST_CASE("ControlGroupMemory reads the root when a container lacks the directory") {
  const TempDir root;
  root.Write("memory.max", "1000\n");
  CHECK(ControlGroupMemory("0::/docker/1\n", root.path()) == 1000);
  CHECK(ControlGroupMemory("0::/\n", root.path()) == 1000);
}

TEST_CASE("ControlGroupMemory reads the limits of version 1") {
  const TempDir root;
  std::filesystem::create_directories(root / "memory/a");
  root.Write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.Write("memory/a/memory.limit_in_bytes", "500\n");
  CHECK(ControlGroupMemory("8:pids:/\n4:cpu,memory:/a\n0::/\n", root.path()) == 500);
  CHECK(ControlGroupMemory("8:pids:/a\n", root.path()) == kNone);
}

TEST_CASE("ControlGroupMemory has no limit when the membership is malformed") {
  for (const char* text : {"", "memory", ":", "4:memory", "\n\n"}) CHECK(ControlGroupMemory(text, "/none") == kNone);
}

TEST_CASE("LeastMemory names the limit that is the least") {
  CHECK(LeastMemory(1, 2, 3).source == "this machine's memory of");
  CHECK(LeastMemory(3, 2, 4).source == "the control group's limit on memory (memory.max) of");
  CHECK(LeastMemory(3, 2, 1).source == "what the limit on address space (ulimit -v) leaves,");
  CHECK(LeastMemory(3, 2, 1).bytes == 1);
}

TEST_CASE("FindMemoryLimit returns at most the memory of this machine") {
  const MemoryLimit limit = FindMemoryLimit();
  CHECK(limit.bytes > 0);
  CHECK(limit.bytes < kNone);
}

}  // namespace
}  // namespace baton
