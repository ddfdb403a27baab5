// Measures transfers of blocks between two processes, and compares them with one bulk copy of the
// same bytes over the same path. Prints a table. --json writes the figures to a file.
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/logging.h"
#include "bench/guarded_transport.h"
#include "bench/report.h"
#include "nlohmann/json.hpp"
#include "node/device.h"
#include "transport/ucx/transport.h"

namespace baton {
namespace {

constexpr int64_t kSlab = int64_t{256} << 20;

double Seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

const Device& DeviceOf(bool cuda) {
  const Device* found = nullptr;
  for (const Device* device : Devices()) {
    if (device->name() == (cuda ? "cuda" : "cpu")) found = device;
  }
  BATON_CHECK(found != nullptr, "--cuda: this build has no CUDA");
  return *found;
}

// Makes a slab of random bytes.
Slab MakeSlab(Transport& transport, bool cuda) {
  const absl::StatusOr<Slab> made = DeviceOf(cuda).MakeSlab(0, kSlab, transport);
  BATON_CHECK(made.ok(), made.status().ToString());
  Slab slab = *made;
  std::mt19937_64 random(static_cast<uint64_t>(getpid()));
  std::vector<uint64_t> words(kSlab / sizeof(uint64_t));
  std::ranges::generate(words, random);
  BATON_CHECK(slab.Copy(slab.data(), words.data(), kSlab).ok(), "filling the slab");
  return slab;
}

// FNV-1a, of words.
uint64_t DigestOf(std::span<const uint64_t> words) {
  uint64_t digest = 14695981039346656037U;
  for (const uint64_t word : words) digest = (digest ^ word) * 1099511628211U;
  return digest;
}

std::vector<uint64_t> WordsOf(const Slab& slab) {
  std::vector<uint64_t> words(kSlab / sizeof(uint64_t));
  BATON_CHECK(slab.Copy(words.data(), slab.data(), kSlab).ok(), "reading the slab");
  return words;
}

// The path of a run's transfers.
struct Way {
  bool cuda = false;
  // True if the other process maps the device's memory.
  bool shared = true;
  // Value of UCX_TLS. Null: all transports.
  const char* transports = nullptr;
  int rounds = 15;
};

// The pipes between the two processes.
struct Pipes {
  int from_peer, to_peer;
};

// Runs the other process, which has a slab. It sends its descriptor, and then the digest of the
// slab's bytes for each byte that it receives. It ends when its parent closes the pipe.
[[noreturn]] void BePeer(const Way& way, int to_parent, int from_parent) {
  auto transport = UcxTransport::Create({.share_device = way.shared});
  BATON_CHECK(transport.ok(), transport.status().ToString());
  const Slab slab = MakeSlab(**transport, way.cuda);
  const std::string descriptor = (*transport)->Descriptor();
  BATON_CHECK(write(to_parent, descriptor.data(), descriptor.size()) > 0, "pipe");
  for (char asked; read(from_parent, &asked, 1) > 0;) {
    const uint64_t digest = DigestOf(WordsOf(slab));
    BATON_CHECK(write(to_parent, &digest, sizeof digest) == sizeof digest, "pipe");
  }
  std::exit(0);
}

class Bench {
 public:
  Bench(const Way& way, const Pipes& peer, const std::string& descriptor) : peer_(peer), rounds_(way.rounds) {
    auto transport = UcxTransport::Create({});
    BATON_CHECK(transport.ok(), transport.status().ToString());
    transport_ = *std::move(transport);
    slab_ = MakeSlab(*transport_, way.cuda);
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
      CheckBytes(block);
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

  // Returns copies that move every block to another offset. No two blocks coalesce, so each block
  // needs its own descriptor.
  static std::vector<BlockCopy> Scattered(int64_t block) {
    const int64_t blocks = kSlab / block;
    std::vector<BlockCopy> scattered;
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t target = blocks % 7 == 0 ? blocks - 1 - i : (i * 7 + 3) % blocks;
      scattered.push_back({i * block, target * block, block});
    }
    return scattered;
  }

  // Checks that the peer has the pushed bytes at the right offsets.
  void CheckBytes(int64_t block) {
    const std::vector<BlockCopy> scattered = Scattered(block);
    PushAndWait({{0, 0, kSlab}});
    PushAndWait(scattered);
    const std::vector<uint64_t> ours = WordsOf(slab_);
    std::vector<uint64_t> expected = ours;
    constexpr int64_t kWord = sizeof(uint64_t);
    for (const BlockCopy& copy : scattered) {
      std::copy_n(ours.begin() + copy.source_offset / kWord, copy.bytes / kWord,
                  expected.begin() + copy.target_offset / kWord);
    }
    uint64_t digest = 0;
    BATON_CHECK(write(peer_.to_peer, "?", 1) == 1, "pipe");
    BATON_CHECK(read(peer_.from_peer, &digest, sizeof digest) == sizeof digest, "pipe");
    BATON_CHECK(digest == DigestOf(expected), "the peer has other bytes than were pushed");
  }

  // Block copies and bulk copies alternate, so that other work on the machine slows both equally.
  nlohmann::ordered_json MoveBlocks(int64_t block) {
    const std::vector<BlockCopy> scattered = Scattered(block);
    const auto blocks = std::ssize(scattered);
    const int64_t bytes = blocks * block;
    std::vector<double> block_s, bulk_s, memcpy_s;
    for (int round = 0; round < rounds_; ++round) {
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

  // Copies one half of the slab to the other half twice, within this process.
  double TimeMemcpy(int64_t bytes) {
    const auto half = static_cast<size_t>(bytes) / 2;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 2; ++i) BATON_CHECK(slab_.Copy(slab_.data() + half, slab_.data(), half).ok(), "copying");
    return Seconds(std::chrono::steady_clock::now() - start);
  }

  // Returns the median time from Push to its completion, in microseconds. The progress threads may
  // sleep between two pushes.
  double Latency(int64_t bytes) {
    std::vector<double> seconds;
    for (int i = 0; i < 2'000; ++i) seconds.push_back(Time({{0, 0, bytes}}));
    const double microseconds = Median(seconds) * 1e6;
    std::fprintf(stderr, "  %8lld bytes, push to done: %.1f us\n", static_cast<long long>(bytes), microseconds);
    return microseconds;
  }

  const Pipes peer_;
  const int rounds_;
  std::unique_ptr<UcxTransport> transport_;
  Slab slab_;
  std::unique_ptr<Link> link_;
};

// Runs a measurement in a child process, because UCX must start with the transports of this run.
// The child sends its result through a pipe.
nlohmann::ordered_json RunWith(const Way& way) {
  int result[2];
  BATON_CHECK(pipe(result) == 0, "pipe");
  const pid_t child = fork();
  if (child == 0) {
    if (way.transports != nullptr) setenv("UCX_TLS", way.transports, 1);
    int descriptor[2];
    int end[2];
    BATON_CHECK(pipe(descriptor) == 0 && pipe(end) == 0, "pipe");
    if (fork() == 0) {
      close(end[1]);
      BePeer(way, descriptor[1], end[0]);
    }
    close(end[0]);
    char buffer[65536];
    const ssize_t bytes = read(descriptor[0], buffer, sizeof buffer);
    BATON_CHECK(bytes > 0, "the peer did not start");
    const std::string json =
        Bench(way, {descriptor[0], end[1]}, std::string(buffer, static_cast<size_t>(bytes))).Run().dump();
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
  using baton::Way;
  const std::vector<std::pair<const char*, Way>> ways =
      cuda ? std::vector<std::pair<const char*, Way>>{{"device_memory", {.cuda = true}},
                                                      {"device_memory_by_ucx", {.cuda = true, .shared = false}},
                                                      {"device_memory_over_tcp",
                                                       {.cuda = true,
                                                        .shared = false,
                                                        .transports = "tcp,cuda_copy",
                                                        .rounds = 3}},
                                                      {"device_memory_through_the_host",
                                                       {.cuda = true,
                                                        .shared = false,
                                                        .transports = "tcp",
                                                        .rounds = 3}}}
           : std::vector<std::pair<const char*, Way>>{{"shared_memory", {}}, {"tcp", {.transports = "tcp"}}};
  nlohmann::ordered_json result;
  for (const auto& [name, way] : ways) {
    std::fprintf(stderr, "%s\n", name);
    result[name] = baton::RunWith(way);
  }
  for (const bool tls : {false, true}) {
    if (cuda) break;
    std::fprintf(stderr, "guarded, by gRPC%s\n", tls ? " and TLS" : "");
    result[tls ? "guarded_tls" : "guarded"] = baton::RunGuarded(tls);
  }
  return baton::WriteReport(result, json);
}
