#include "kv/staging/file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "catch.h"
#include "child_process.h"
#include "temp_dir.h"

namespace baton {
namespace {

constexpr int64_t kSlot = 5000;

std::vector<std::byte> Bytes(int seed) {
  std::vector<std::byte> bytes(kSlot);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + static_cast<size_t>(seed));
  return bytes;
}

TEST_CASE("StagingFile returns the written bytes and keeps its file unlinked and private") {
  const TempDir directory;
  const auto file = StagingFile::Create(directory.path(), 4, kSlot);
  REQUIRE(file.ok());
  CHECK(std::filesystem::is_empty(directory.path()));
  struct stat info {};
  REQUIRE(fstat((*file)->descriptor(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CHECK(info.st_nlink == 0);
  CHECK(info.st_size == 4 * kSlot);
  for (int slot : {3, 0, 3}) REQUIRE((*file)->Write(slot, Bytes(slot)).ok());
  std::vector<std::byte> read(kSlot);
  for (int slot : {0, 3}) {
    REQUIRE((*file)->Read(slot, read).ok());
    CHECK(read == Bytes(slot));
  }
}

TEST_CASE("StagingFile detects bytes that changed on disk") {
  const TempDir directory;
  const auto file = StagingFile::Create(directory.path(), 4, kSlot);
  REQUIRE(file.ok());
  REQUIRE((*file)->Write(2, Bytes(1)).ok());
  const char other = 'x';
  REQUIRE(pwrite((*file)->descriptor(), &other, 1, 2 * kSlot + 77) == 1);
  std::vector<std::byte> read(kSlot);
  CHECK(absl::IsDataLoss((*file)->Read(2, read)));
  REQUIRE(ftruncate((*file)->descriptor(), 2 * kSlot + 100) == 0);
  CHECK(absl::IsDataLoss((*file)->Read(2, read)));
}

TEST_CASE("StagingFile refuses a slot's previous contents") {
  const TempDir directory;
  const auto file = StagingFile::Create(directory.path(), 4, kSlot);
  REQUIRE(file.ok());
  REQUIRE((*file)->Write(2, Bytes(1)).ok());
  REQUIRE((*file)->Write(2, Bytes(2)).ok());
  REQUIRE(pwrite((*file)->descriptor(), Bytes(1).data(), kSlot, 2 * kSlot) == kSlot);
  std::vector<std::byte> read(kSlot);
  CHECK(absl::IsDataLoss((*file)->Read(2, read)));
}

TEST_CASE("StagingFile serves several threads on different slots") {
  const TempDir directory;
  constexpr int kThreads = 4, kSlots = 64;
  const auto file = StagingFile::Create(directory.path(), kSlots, kSlot);
  REQUIRE(file.ok());
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      std::vector<std::byte> read(kSlot);
      for (int slot = i; slot < kSlots; slot += kThreads) {
        const bool ok = (*file)->Write(slot, Bytes(slot)).ok() && (*file)->Read(slot, read).ok();
        right += ok && read == Bytes(slot);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == kSlots);
}

TEST_CASE("StagingFile fails at the start when no file can be made") {
  const TempDir directory;
  directory.Write("file", "");
  const auto missing = StagingFile::Create(directory / "missing", 4, kSlot);
  CHECK(absl::IsNotFound(missing.status()));
  CHECK(missing.status().message().find(directory / "missing") != std::string::npos);
  CHECK_FALSE(StagingFile::Create(directory / "file", 4, kSlot).ok());
  const auto huge = StagingFile::Create(directory.path(), int64_t{1} << 40, kSlot);
  CHECK(absl::IsResourceExhausted(huge.status()));
  CHECK(huge.status().message().find("MiB are free. Free space or lower --kv-disk-mb") != std::string::npos);
}

TEST_CASE("StagingFile names ulimit -f when the limit on file size is too low") {
  const TempDir directory;
  const ChildEnd end = RunInChild([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::cerr << StagingFile::Create(directory.path(), 2, 1 << 20).status();
  });
  CHECK(end.stderr_text == "RESOURCE_EXHAUSTED: no file of 2 MiB can be created in " + directory.path() +
                               ": the limit on file size is 1024 KiB. Raise it (ulimit -f) or lower --kv-disk-mb");
}

}  // namespace
}  // namespace baton
