#include "bench/guarded_transport.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "bench/report.h"
#include "certificates.h"
#include "rpc/tls.h"
#include "shell/kv_transfer_service.h"
#include "transport/guarded/connector.h"
#include "transport/in_process/transport.h"

namespace baton {
namespace {

constexpr int64_t kSlab = int64_t{256} << 20;
constexpr int kRounds = 15;

// SmolLM2-135M and Llama-3.1-8B.
constexpr KvLayout kLayouts[] = {{.layers = 30, .kv_heads = 3, .head_dim = 64, .format = KvFormat::kBf16},
                                 {.layers = 32, .kv_heads = 8, .head_dim = 128, .format = KvFormat::kBf16}};

int64_t Blocks(const KvLayout& layout) { return kSlab / layout.BlockBytes(); }

std::shared_ptr<InProcessNetwork::Memory> MakeSlab() {
  auto memory = InProcessNetwork::Memory::Map(kSlab).value();
  std::mt19937_64 random(static_cast<uint64_t>(getpid()));
  const std::span<std::byte> bytes = memory->slab().host();
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, sizeof word);
  }
  return memory;
}

// Data that the peer sends to the pushing process.
struct PeerInfo {
  char address[64] = {};
  WriteKey write_key;
};

[[noreturn]] void BePeer(const KvLayout& layout, const TlsFiles& files, int to_parent, int from_parent) {
  const auto memory = MakeSlab();
  WriteGuard guard(memory->slab(), layout);
  KvTransferService service;
  service.Guard(guard);
  const auto server =
      GrpcServer::Start("127.0.0.1:0", GrpcServer::Audience::kWorkers, {&service}, ServerCredentials(files));
  BATON_CHECK(server.ok(), server.status().ToString());
  std::vector<BlockId> blocks;
  for (int64_t i = 0; i < Blocks(layout); ++i) blocks.push_back(BlockId(static_cast<uint32_t>(i)));
  PeerInfo info;
  info.write_key = guard.Grant(blocks);
  std::snprintf(info.address, sizeof info.address, "%s", (*server)->address().c_str());
  BATON_CHECK(write(to_parent, &info, sizeof info) == sizeof info, "pipe");
  char end;
  while (read(from_parent, &end, 1) > 0) {
  }
  std::_Exit(0);
}

double Time(Link& link, const WriteKey& write_key, const std::vector<BlockCopy>& copies) {
  std::promise<absl::Status> result;
  const auto start = std::chrono::steady_clock::now();
  link.PushUnder(write_key, copies, [&](absl::Status status) { result.set_value(std::move(status)); });
  const absl::Status status = result.get_future().get();
  BATON_CHECK(status.ok(), status.ToString());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Pushes every block to another offset, as in bench_transport.cc. Returns GB/s.
double Push(const KvLayout& layout, const TlsFiles& files, const PeerInfo& info) {
  const auto memory = MakeSlab();
  InProcessTransport others(std::make_shared<InProcessNetwork>());
  GuardedConnector connector(others, {.source = memory->slab(), .layout = layout, .reach = DialBy(files)});
  const auto link = connector.Connect(GuardedDescriptor(info.address, kSlab));
  BATON_CHECK(link.ok(), link.status().ToString());
  const int64_t block = layout.BlockBytes(), blocks = Blocks(layout);
  std::vector<BlockCopy> copies;
  for (int64_t i = 0; i < blocks; ++i) copies.push_back({i * block, (blocks - 1 - i) * block, block});
  // Maps all pages.
  Time(**link, info.write_key, copies);
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) seconds.push_back(Time(**link, info.write_key, copies));
  return static_cast<double>(blocks * block) / Median(seconds) / 1e9;
}

double RunIn(const KvLayout& layout, const TlsFiles& files) {
  int info_pipe[2], end[2], result[2];
  BATON_CHECK(pipe(info_pipe) == 0 && pipe(end) == 0 && pipe(result) == 0, "pipe");
  // gRPC must start after the fork in both processes.
  if (fork() == 0) {
    if (fork() == 0) {
      close(end[1]);
      BePeer(layout, files, info_pipe[1], end[0]);
    }
    PeerInfo peer;
    BATON_CHECK(read(info_pipe[0], &peer, sizeof peer) == sizeof peer, "the peer did not start");
    const double rate = Push(layout, files, peer);
    BATON_CHECK(write(result[1], &rate, sizeof rate) == sizeof rate, "pipe");
    close(end[1]);
    wait(nullptr);
    std::_Exit(0);
  }
  close(end[1]);
  double rate = 0;
  BATON_CHECK(read(result[0], &rate, sizeof rate) == sizeof rate, "the pusher failed");
  wait(nullptr);
  return rate;
}

}  // namespace

nlohmann::ordered_json RunGuarded(bool tls) {
  Authority authority("bench");
  const TlsFiles files = tls ? authority.Issue("worker") : TlsFiles{};
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const KvLayout& layout : kLayouts) {
    const double rate = RunIn(layout, files);
    std::fprintf(stderr, "  %8lld-byte blocks %7.2f GB/s\n", static_cast<long long>(layout.BlockBytes()), rate);
    all.push_back({{"block_bytes", layout.BlockBytes()}, {"blocks", Blocks(layout)}, {"blocks_gb_s", rate}});
  }
  return all;
}

}  // namespace baton
