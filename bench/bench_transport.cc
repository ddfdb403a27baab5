// How fast blocks move between two processes, against one bulk copy of the same bytes by the same means.
// Prints a table; --json writes the figures to a file.
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/logging.h"
#include "bench/guarded_transport.h"
#include "bench/report.h"
#include "gpu_parts.h"
#include "nlohmann/json.hpp"
#include "transport/ucx_transport.h"

namespace baton {
namespace {

constexpr int64_t kSlab = int64_t{256} << 20;
constexpr int kRounds = 15;

double Seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

// Full of random bytes.
Slab MakeSlab(Transport& transport, bool cuda) {
  Slab slab;
  if (cuda) {
    const auto adopted = AdoptCudaSlab(0, kSlab, transport);
    BATON_CHECK(adopted.ok(), adopted.status().ToString());
    slab = *adopted;
  } else {
    const auto allocated = transport.AllocateSlab(kSlab);
    BATON_CHECK(allocated.ok(), allocated.status().ToString());
    slab = *allocated;
  }
  std::mt19937_64 random(static_cast<uint64_t>(getpid()));
  std::vector<uint64_t> words(kSlab / sizeof(uint64_t));
  std::ranges::generate(words, random);
  BATON_CHECK(slab.Copy(slab.data(), words.data(), kSlab).ok(), "filling the slab");
  return slab;
}

// The other process: has a slab, tells its descriptor, and waits until its parent is done.
[[noreturn]] void BePeer(bool cuda, int to_parent, int from_parent) {
  auto transport = UcxTransport::Create({});
  BATON_CHECK(transport.ok(), transport.status().ToString());
  MakeSlab(**transport, cuda);
  const std::string descriptor = (*transport)->Descriptor();
  BATON_CHECK(write(to_parent, descriptor.data(), descriptor.size()) > 0, "pipe");
  char end;
  while (read(from_parent, &end, 1) > 0) {
  }
  std::exit(0);
}

class Bench {
 public:
  Bench(bool cuda, const std::string& descriptor) {
    auto transport = UcxTransport::Create({});
    BATON_CHECK(transport.ok(), transport.status().ToString());
    transport_ = *std::move(transport);
    slab_ = MakeSlab(*transport_, cuda);
    auto link = transport_->Connect(descriptor);
    BATON_CHECK(link.ok(), link.status().ToString());
    link_ = *std::move(link);
    PushAndWait({{0, 0, kSlab}});  // maps all pages
  }

  nlohmann::ordered_json Run() {
    nlohmann::ordered_json result{{"link", link_->Description()}, {"blocks", nlohmann::ordered_json::array()}};
    // SmolLM2-135M, and two round sizes.
    for (int64_t block : {int64_t{368'640}, int64_t{512} << 10, int64_t{2} << 20}) {
      result["blocks"].push_back(MoveBlocks(block));
    }
    for (int64_t bytes : {8, 4096}) {
      result[bytes == 8 ? "latency_8_bytes_us" : "latency_4096_bytes_us"] = Latency(bytes);
    }
    return result;
  }

 private:
  void PushAndWait(const std::vector<BlockCopy>& copies) {
    std::promise<absl::Status> result;
    link_->Push(copies, [&](absl::Status status) { result.set_value(std::move(status)); });
    const absl::Status status = result.get_future().get();
    BATON_CHECK(status.ok(), status.ToString());
  }
  double Time(const std::vector<BlockCopy>& copies) {
    const auto start = std::chrono::steady_clock::now();
    PushAndWait(copies);
    return Seconds(std::chrono::steady_clock::now() - start);
  }

  // Every block goes to another place, so that nothing coalesces: one descriptor for each block. Interleaved with the
  // bulk copies, so that other work on the machine disturbs all alike.
  nlohmann::ordered_json MoveBlocks(int64_t block) {
    const int64_t blocks = kSlab / block;
    std::vector<BlockCopy> scattered;
    for (int64_t i = 0; i < blocks; ++i) scattered.push_back({i * block, (i * 7 + 3) % blocks * block, block});
    if (blocks % 7 == 0) {
      for (int64_t i = 0; i < blocks; ++i) scattered[static_cast<size_t>(i)].target_offset = (blocks - 1 - i) * block;
    }
    const int64_t bytes = blocks * block;
    std::vector<double> block_s, bulk_s, memcpy_s;
    for (int round = 0; round < kRounds; ++round) {
      block_s.push_back(Time(scattered));
      bulk_s.push_back(Time({{0, 0, bytes}}));
      memcpy_s.push_back(TimeMemcpy(bytes));
    }
    const auto rate = [&](const std::vector<double>& seconds) {
      return static_cast<double>(bytes) / Median(seconds) / 1e9;
    };
    std::fprintf(
        stderr, "  %8lld-byte blocks %7.2f GB/s  one bulk push %7.2f GB/s (%.0f %%)  one memcpy %7.2f GB/s (%.0f %%)\n",
        static_cast<long long>(block), rate(block_s), rate(bulk_s), 100 * rate(block_s) / rate(bulk_s), rate(memcpy_s),
        100 * rate(block_s) / rate(memcpy_s));
    return {{"block_bytes", block},
            {"blocks", blocks},
            {"blocks_gb_s", rate(block_s)},
            {"bulk_push_gb_s", rate(bulk_s)},
            {"memcpy_gb_s", rate(memcpy_s)},
            {"share_of_bulk_push", rate(block_s) / rate(bulk_s)},
            {"share_of_memcpy", rate(block_s) / rate(memcpy_s)}};
  }

  // Within this process, from one half of the slab to the other, twice.
  double TimeMemcpy(int64_t bytes) {
    const auto half = static_cast<size_t>(bytes) / 2;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 2; ++i) BATON_CHECK(slab_.Copy(slab_.data() + half, slab_.data(), half).ok(), "copying");
    return Seconds(std::chrono::steady_clock::now() - start);
  }

  // From Push to done, microseconds, median. The progress threads sleep between two pushes if they get to it.
  double Latency(int64_t bytes) {
    std::vector<double> seconds;
    for (int i = 0; i < 2'000; ++i) seconds.push_back(Time({{0, 0, bytes}}));
    const double microseconds = Median(seconds) * 1e6;
    std::fprintf(stderr, "  %8lld bytes, push to done: %.1f us\n", static_cast<long long>(bytes), microseconds);
    return microseconds;
  }

  std::unique_ptr<UcxTransport> transport_;
  Slab slab_;
  std::unique_ptr<Link> link_;
};

// In a child of its own, so that UCX starts anew with the transports of this run. The result comes by a pipe.
nlohmann::ordered_json RunWith(bool cuda, const char* transports) {
  int result[2];
  BATON_CHECK(pipe(result) == 0, "pipe");
  const pid_t child = fork();
  if (child == 0) {
    if (transports != nullptr) setenv("UCX_TLS", transports, 1);
    int descriptor[2];
    int end[2];
    BATON_CHECK(pipe(descriptor) == 0 && pipe(end) == 0, "pipe");
    if (fork() == 0) {
      close(end[1]);
      BePeer(cuda, descriptor[1], end[0]);
    }
    close(end[0]);
    char buffer[65536];
    const ssize_t bytes = read(descriptor[0], buffer, sizeof buffer);
    BATON_CHECK(bytes > 0, "the peer did not start");
    const std::string json = Bench(cuda, std::string(buffer, static_cast<size_t>(bytes))).Run().dump();
    BATON_CHECK(write(result[1], json.data(), json.size()) == static_cast<ssize_t>(json.size()), "pipe");
    close(end[1]);
    wait(nullptr);
    std::exit(0);
  }
  close(result[1]);
  std::string json;
  char buffer[4096];
  for (ssize_t n; (n = read(result[0], buffer, sizeof buffer)) > 0;) json.append(buffer, static_cast<size_t>(n));
  close(result[0]);
  waitpid(child, nullptr, 0);
  return nlohmann::ordered_json::parse(json);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  CLI::App app("Measures block transfer between two processes by shared memory, by TCP, and as with --guard-kv.");
  std::string json;
  bool cuda = false;
  app.add_option("--json", json, "write the results to this file");
  app.add_flag("--cuda", cuda, "slabs in the memory of the first GPU");
  CLI11_PARSE(app, argc, argv);
  nlohmann::ordered_json result;
  std::fprintf(stderr, "%s\n", cuda ? "device memory, one host" : "shared memory");
  result[cuda ? "device_memory" : "shared_memory"] = baton::RunWith(cuda, nullptr);
  std::fprintf(stderr, "TCP over loopback\n");
  result["tcp"] = baton::RunWith(cuda, cuda ? "tcp,cuda_copy" : "tcp");
  for (const bool tls : {false, true}) {
    if (cuda) break;
    std::fprintf(stderr, "guarded, by gRPC%s\n", tls ? " and TLS" : "");
    result[tls ? "guarded_tls" : "guarded"] = baton::RunGuarded(tls);
  }
  return baton::WriteReport(result, json);
}
