#include "transport/guarded/write_link.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "base/logging.h"
#include "catch.h"
#include "kv/striped_slab.h"
#include "shell/kv_transfer_service.h"
#include "transport/guarded/connector.h"
#include "transport/in_process/transport.h"

namespace baton {
namespace {

// Blocks of 768 KiB. A message holds one block and a part of the next.
constexpr KvLayout kLayout{.layers = 12, .kv_heads = 16, .head_dim = 64, .format = KvFormat::kBf16};
const int64_t kBlock = kLayout.BlockBytes();
const int64_t kPlane = kLayout.PlaneBytes();
constexpr int64_t kBlocks = 6;

std::vector<std::byte> Memory(unsigned seed) {
  std::vector<std::byte> memory(static_cast<size_t>(kBlocks * kBlock));
  std::mt19937 random(seed);
  if (seed > 0) std::ranges::generate(memory, [&] { return static_cast<std::byte>(random()); });
  return memory;
}

// A slab of two ranks. The first rank has `share` sixteenths of each plane.
struct Ranks {
  std::vector<std::byte> first, second;
  std::unique_ptr<StripedSlab> striped;

  Ranks(const std::vector<std::byte>& whole, int64_t share) {
    const int64_t cut = kPlane / 16 * share;
    for (int64_t at = 0; at < std::ssize(whole); at += kPlane) {
      first.insert(first.end(), whole.begin() + at, whole.begin() + at + cut);
      second.insert(second.end(), whole.begin() + at + cut, whole.begin() + at + kPlane);
    }
    striped = StripedSlab::Make(kPlane, {{Slab(first), {0, cut}}, {Slab(second), {cut, kPlane}}}).value();
  }
};

// The decode worker's end: a guarded slab behind a real socket.
struct Target {
  WriteGuard guard;
  KvTransferService service;
  std::unique_ptr<GrpcServer> server;

  explicit Target(const Slab& slab) : guard(slab, kLayout) {
    service.Guard(guard);
    server = GrpcServer::Start("127.0.0.1:0", GrpcServer::Audience::kWorkers, {&service}).value();
  }
  std::string Descriptor() const { return GuardedDescriptor(server->address(), kBlocks * kBlock); }
};

struct Source {
  InProcessTransport others{std::make_shared<InProcessNetwork>()};
  GuardedConnector connector;
  explicit Source(const Slab& slab, bool guarded_only = false)
      : connector(others, {.source = slab, .layout = kLayout, .reach = DialTcp, .guarded_only = guarded_only}) {}
};

absl::Status PushAndWait(Link& link, const WriteKey& write_key, const std::vector<BlockCopy>& copies) {
  std::promise<absl::Status> result;
  link.PushUnder(write_key, copies, [&](absl::Status status) { result.set_value(std::move(status)); });
  return result.get_future().get();
}

TEST_CASE("KvWriteLink writes blocks bit for bit between any numbers of ranks") {
  const std::vector<std::byte> whole = Memory(7);
  for (const auto& [source_share, target_share] : {std::pair(0, 0), {4, 0}, {0, 12}, {4, 12}}) {
    CAPTURE(source_share, target_share);
    std::vector<std::byte> ours = whole, theirs = Memory(0);
    std::optional<Ranks> our_ranks, their_ranks;
    if (source_share > 0) our_ranks.emplace(whole, source_share);
    if (target_share > 0) their_ranks.emplace(theirs, target_share);
    Target target(their_ranks ? their_ranks->striped->slab() : Slab(theirs));
    Source source(our_ranks ? our_ranks->striped->slab() : Slab(ours));
    const auto link = source.connector.Connect(target.Descriptor()).value();
    CHECK(absl::StrContains(link->Description(), "gRPC"));

    // Neighbours that coalesce, a block alone, and a block in two parts of whole layers.
    const WriteKey write_key = target.guard.Grant(std::vector{BlockId(1), BlockId(2), BlockId(3), BlockId(5)});
    const std::vector<BlockCopy> copies = {
        {0, kBlock, kBlock}, {kBlock, 2 * kBlock, kBlock}, {4 * kBlock, 3 * kBlock, kBlock}};
    const int64_t part = 5 * kLayout.LayerBytes();
    CHECK(PushAndWait(*link, write_key, copies).ok());
    CHECK(PushAndWait(*link, write_key, {{2 * kBlock, 5 * kBlock, part}}).ok());
    CHECK(PushAndWait(*link, write_key, {{2 * kBlock + part, 5 * kBlock + part, kBlock - part}}).ok());

    std::vector<std::byte> expected = Memory(0);
    const auto copy = [&](int64_t from, int64_t to) {
      std::copy_n(whole.begin() + from * kBlock, kBlock, expected.begin() + to * kBlock);
    };
    copy(0, 1), copy(1, 2), copy(4, 3), copy(2, 5);
    if (their_ranks) {
      const Ranks expected_ranks(expected, target_share);
      CHECK(std::ranges::equal(their_ranks->first, expected_ranks.first));
      CHECK(std::ranges::equal(their_ranks->second, expected_ranks.second));
    } else {
      CHECK(std::ranges::equal(theirs, expected));
    }
  }
}

TEST_CASE("KvWriteLink returns the worker's refusal and writes nothing") {
  spdlog::set_level(spdlog::level::off);
  std::vector<std::byte> ours = Memory(7), theirs = Memory(0);
  Target target{Slab(theirs)};
  Source source{Slab(ours)};
  const auto link = source.connector.Connect(target.Descriptor()).value();
  const WriteKey write_key = target.guard.Grant(std::vector{BlockId(1)});
  CHECK(absl::IsPermissionDenied(PushAndWait(*link, {}, {{0, kBlock, kBlock}})));
  CHECK(absl::IsPermissionDenied(PushAndWait(*link, write_key, {{0, 2 * kBlock, kBlock}})));
  target.guard.Revoke(write_key.id);
  CHECK(absl::IsPermissionDenied(PushAndWait(*link, write_key, {{0, kBlock, kBlock}})));
  CHECK(PushAndWait(*link, write_key, {{0, kBlocks * kBlock, kBlock}}).code() == absl::StatusCode::kInvalidArgument);
  absl::Status without;
  link->Push(std::vector<BlockCopy>{{0, kBlock, kBlock}}, [&](absl::Status status) { without = std::move(status); });
  CHECK(absl::IsFailedPrecondition(without));
  CHECK(std::ranges::equal(theirs, Memory(0)));
  spdlog::set_level(spdlog::level::info);
}

// A service that answers a Write only when the Write is cancelled.
class HangingService final : public kv::v1::KvTransfer::Service {
 public:
  grpc::Status Write(grpc::ServerContext* context, const kv::v1::WriteRequest*, kv::v1::WriteReply*) override {
    ++calls;
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::CANCELLED;
  }
  std::atomic<int> calls = 0;
};

// Returns a link to a service under test.
std::unique_ptr<KvWriteLink> LinkTo(const GrpcServer& server, const Slab& source,
                                    std::chrono::milliseconds write_within = std::chrono::hours(1)) {
  return std::make_unique<KvWriteLink>(DialTcp(server.address()), KvWritePeer{.source = source,
                                                                              .plane_bytes = kPlane,
                                                                              .target_bytes = kBlocks * kBlock,
                                                                              .address = server.address(),
                                                                              .write_within = write_within});
}

// A service that waits for `takes` before it answers a Write. It refuses writes with the write key
// `refuses`, once `hold` is false.
class PatientService final : public kv::v1::KvTransfer::Service {
 public:
  grpc::Status Write(grpc::ServerContext*, const kv::v1::WriteRequest* request, kv::v1::WriteReply*) override {
    ++calls;
    if (request->right().id() == refuses) {
      ++refused;
      while (hold) std::this_thread::yield();
      return {grpc::StatusCode::PERMISSION_DENIED, "over"};
    }
    std::this_thread::sleep_for(takes);
    return grpc::Status::OK;
  }
  std::atomic<int> calls = 0, refused = 0;
  std::atomic<bool> hold = true;
  std::chrono::milliseconds takes{0};
  uint64_t refuses = 0;
};

// Pushes a backlog over a link that allows `within` for each message. The worker takes an eighth of
// that for each message. Returns false if a message took longer than `within`.
bool BacklogArrives(std::chrono::milliseconds within) {
  PatientService service;
  service.takes = within / 8;
  const auto server = GrpcServer::Start("127.0.0.1:0", GrpcServer::Audience::kWorkers, {&service}).value();
  std::vector<std::byte> ours = Memory(7);
  const auto link = LinkTo(*server, Slab(ours), within);
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::promise<absl::Status>> pushes(10);
  for (auto& push : pushes) {
    link->PushUnder({.id = 1}, std::vector<BlockCopy>{{0, 0, kBlocks * kBlock}},
                    [&](absl::Status status) { push.set_value(std::move(status)); });
  }
  bool all_arrive = true;
  for (auto& push : pushes) {
    const absl::Status status = push.get_future().get();
    CHECK((status.ok() || absl::IsUnavailable(status)));
    all_arrive = all_arrive && status.ok();
  }
  if (!all_arrive) return false;
  CHECK(std::chrono::steady_clock::now() - start > within);
  CHECK(service.calls == 50);
  return true;
}

TEST_CASE("KvWriteLink completes a backlog that takes longer than one message's limit") {
  std::chrono::milliseconds within(300);
  while (!BacklogArrives(within)) within *= 2;  // a slow machine needs longer
}

TEST_CASE("KvWriteLink ends all waiting pushes with a refused write key and no others") {
  PatientService service;
  service.refuses = 1;
  const auto server = GrpcServer::Start("127.0.0.1:0", GrpcServer::Audience::kWorkers, {&service}).value();
  std::vector<std::byte> ours = Memory(7);
  const auto link = LinkTo(*server, Slab(ours));
  std::vector<std::promise<absl::Status>> pushes(6);
  for (size_t i = 0; i < pushes.size(); ++i) {
    link->PushUnder({.id = 1 + i % 2}, std::vector<BlockCopy>{{0, 0, kBlocks * kBlock}},
                    [&pushes, i](absl::Status status) { pushes[i].set_value(std::move(status)); });
  }
  // Waits until the service holds a message of each thread.
  while (service.refused < 2) std::this_thread::yield();
  service.hold = false;
  for (size_t i = 0; i < pushes.size(); ++i) {
    const auto expected = i % 2 == 0 ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kOk;
    CHECK(pushes[i].get_future().get().code() == expected);
  }
  CHECK(service.refused == 2);
}

// A device that cannot be read.
class BrokenMemory final : public SlabAccess {
 public:
  absl::Status Copy(std::span<const MemoryCopy>) const override { return absl::InternalError("the device is broken"); }
  absl::StatusOr<HostMemory> AllocateHost(size_t) const override { return absl::UnimplementedError("not asked for"); }
};

TEST_CASE("KvWriteLink reports its own slab's read error as its own") {
  PatientService service;
  const auto server = GrpcServer::Start("127.0.0.1:0", GrpcServer::Audience::kWorkers, {&service}).value();
  std::vector<std::byte> ours = Memory(0);
  const BrokenMemory broken;
  const auto link = LinkTo(*server, Slab(ours, &broken));
  CHECK(PushAndWait(*link, {.id = 1}, {{0, 0, kBlock}}) == absl::InternalError("the device is broken"));
  CHECK(service.calls == 0);
}

TEST_CASE("KvWriteLink returns UNAVAILABLE when a message exceeds its limit") {
  HangingService service;
  const auto server = GrpcServer::Start("127.0.0.1:0", GrpcServer::Audience::kWorkers, {&service}).value();
  std::vector<std::byte> ours = Memory(7);
  const auto link = LinkTo(*server, Slab(ours), std::chrono::milliseconds(300));
  CHECK(absl::IsUnavailable(PushAndWait(*link, {.id = 1}, {{0, 0, kBlocks * kBlock}})));
}

TEST_CASE("KvWriteLink can be closed when the worker hangs, which ends its pushes") {
  HangingService service;
  const auto server = GrpcServer::Start("127.0.0.1:0", GrpcServer::Audience::kWorkers, {&service}).value();
  std::vector<std::byte> ours = Memory(7);
  Source source{Slab(ours)};
  auto link = source.connector.Connect(GuardedDescriptor(server->address(), kBlocks * kBlock)).value();
  std::atomic<int> unavailable = 0;
  for (int i = 0; i < 8; ++i) {
    link->PushUnder({.id = 1}, std::vector<BlockCopy>{{0, 0, kBlocks * kBlock}},
                    [&](const absl::Status& status) { unavailable += absl::IsUnavailable(status); });
  }
  while (service.calls == 0) std::this_thread::yield();
  link.reset();
  CHECK(unavailable == 8);
}

TEST_CASE("GuardedConnector refuses a lost worker and a damaged descriptor") {
  std::vector<std::byte> ours = Memory(7), theirs = Memory(0);
  Source source{Slab(ours)}, strict{Slab(ours), /*guarded_only=*/true};
  std::string descriptor;
  {
    Target target{Slab(theirs)};
    descriptor = target.Descriptor();
    CHECK(strict.connector.Connect(descriptor).ok());
  }
  CHECK(absl::IsUnavailable(source.connector.Connect(descriptor).status()));
  descriptor[9] = static_cast<char>(descriptor[9] ^ 1);
  const absl::Status damaged = strict.connector.Connect(descriptor).status();
  CHECK(absl::IsFailedPrecondition(damaged));
  CHECK(absl::StrContains(damaged.message(), "--guard-kv"));
}

}  // namespace
}  // namespace baton
