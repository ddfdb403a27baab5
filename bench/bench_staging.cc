// Measures the rate at which staged KV is read from disk and verified, with one thread and with
// several. Prints a table. --json writes the figures to a file.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "bench/report.h"
#include "kv/staging/file.h"

namespace baton {
namespace {

constexpr int64_t kFileBytes = int64_t{256} << 20;

double Seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

double CpuSeconds() {
  rusage usage{};
  BATON_CHECK(getrusage(RUSAGE_SELF, &usage) == 0, "getrusage");
  const auto seconds = [](timeval time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Rate {
  double mb_per_second = 0, cpu_ms_per_mb = 0;
};

// Measures calls of `slot_done` for all slots on `threads` threads.
template <typename Function>
Rate Measure(int64_t slots, int64_t bytes, int threads, Function slot_done) {
  const double cpu = CpuSeconds();
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([=] {
      std::vector<std::byte> block(static_cast<size_t>(bytes));
      for (int64_t slot = i; slot < slots; slot += threads) slot_done(slot, block);
    });
  }
  for (std::thread& thread : running) thread.join();
  const double megabytes = static_cast<double>(slots * bytes) / 1e6;
  return {megabytes / Seconds(std::chrono::steady_clock::now() - begin), 1e3 * (CpuSeconds() - cpu) / megabytes};
}

Rate MedianOf(const std::vector<Rate>& rates) {
  std::vector<double> speed, cpu;
  for (const Rate& rate : rates) {
    speed.push_back(rate.mb_per_second);
    cpu.push_back(rate.cpu_ms_per_mb);
  }
  return {Median(speed), Median(cpu)};
}

// Measures blocks of `bytes` from the system's page cache, and from the disk. The system may keep
// some blocks cached in the second case.
nlohmann::json Run(const std::string& directory, int64_t bytes, int threads, int rounds) {
  const int64_t slots = kFileBytes / bytes;
  auto file = StagingFile::Create(directory, slots, bytes);
  BATON_CHECK(file.ok(), file.status().ToString());
  std::vector<std::byte> content(static_cast<size_t>(bytes));
  std::mt19937 random(1);
  std::ranges::generate(content, [&] { return static_cast<std::byte>(random()); });
  const auto write = [&](int64_t slot, std::vector<std::byte>&) {
    BATON_CHECK((*file)->Write(slot, content).ok(), "writing");
  };
  const auto read = [&](int64_t slot, std::vector<std::byte>& block) {
    BATON_CHECK((*file)->Read(slot, block).ok(), "reading");
  };
  std::vector<Rate> written, cached, dropped;
  for (int round = 0; round < rounds; ++round) {
    // In older commits only one thread can write the file.
    written.push_back(Measure(slots, bytes, 1, write));
    cached.push_back(Measure(slots, bytes, threads, read));
    const int descriptor = (*file)->descriptor();
    BATON_CHECK(fdatasync(descriptor) == 0 && posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED) == 0, "dropping");
    dropped.push_back(Measure(slots, bytes, threads, read));
  }
  nlohmann::json report{{"block_bytes", bytes}, {"threads", threads}};
  const auto tell = [&](const char* what, const std::vector<Rate>& rates) {
    const Rate rate = MedianOf(rates);
    std::printf("%8ld bytes, %d threads, %-22s %7.0f MB/s, %.3f ms of CPU a MB\n", static_cast<long>(bytes), threads,
                what, rate.mb_per_second, rate.cpu_ms_per_mb);
    report[what] = {{"mb_per_second", rate.mb_per_second}, {"cpu_ms_per_mb", rate.cpu_ms_per_mb}};
  };
  tell("written by one thread", written);
  tell("read from the cache", cached);
  tell("read from disk", dropped);
  return report;
}

int Main(int argc, char** argv) {
  CLI::App app("Measures how fast staged KV comes back from disk.");
  std::string directory = "/tmp", json;
  int rounds = 5;
  app.add_option("--directory", directory, "directory on the disk to measure, which has 256 MiB free")
      ->capture_default_str();
  app.add_option("--rounds", rounds, "measurements of each case; figures are their medians")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--json", json, "write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  nlohmann::json report;
  // Blocks of SmolLM2-135M in bf16 and of Llama 3.1 8B.
  for (const int64_t bytes : {368640, 2097152}) {
    for (const int threads : {1, 4}) report.push_back(Run(directory, bytes, threads, rounds));
  }
  return WriteReport(report, json);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
