// Tests of slabs in memory that neither the host nor UCX can access. Every byte must pass the
// slab's own copy.
#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/match.h"
#include "await.h"
#include "catch.h"
#include "transport/block_pushes.h"
#include "transport/in_process/transport.h"
#include "transport/ucx/descriptor.h"
#include "transport/ucx/guarded_memory.h"
#include "transport/ucx/link.h"
#include "transport/ucx/parked_links.h"
#include "transport/ucx/transport.h"

namespace baton {
namespace {

constexpr int64_t kSideBlocks = 12;
constexpr int64_t kSideBytes = kSideBlocks * kModelBlock;

// One side of a link: a transport with its slab, on the host or guarded.
struct Side {
  std::unique_ptr<Transport> transport;
  std::byte* bytes = nullptr;  // the slab's bytes, for the test
};

enum class Kind { kHost, kGuarded, kShared };

Side Make(std::unique_ptr<Transport> transport, Kind kind, uint32_t seed) {
  Side side{std::move(transport)};
  if (kind != Kind::kHost) {
    const auto memory = std::make_shared<GuardedMemory>(kSideBytes + kSlabMarginBytes, kind == Kind::kShared);
    side.bytes = memory->open();
    REQUIRE(side.transport->AdoptSlab(memory->slab(), kSideBytes, memory).ok());
  } else {
    const auto slab = side.transport->AllocateSlab(kSideBytes);
    REQUIRE(slab.ok());
    side.bytes = slab->data();
  }
  std::mt19937 random(seed);
  for (int64_t i = 0; i < kSideBytes; ++i) side.bytes[i] = static_cast<std::byte>(random());
  return side;
}

// Pushes odd blocks in reverse order and a piece of one block. Checks that only these bytes change.
void CheckPush(const Side& from, const Side& to, const std::string& by) {
  const auto link = from.transport->Connect(to.transport->Descriptor());
  INFO(link.status().ToString());
  REQUIRE(link.ok());
  INFO((*link)->Description());
  CHECK(absl::StrContains((*link)->Description(), by));
  std::vector<std::byte> expected(to.bytes, to.bytes + kSideBytes);
  std::vector<BlockCopy> copies;
  for (int64_t block = 1; block < kSideBlocks; block += 2) {
    copies.push_back({block * kModelBlock, (kSideBlocks - block) * kModelBlock, kModelBlock});
  }
  copies.push_back({17, 5, 1000});
  for (const BlockCopy& copy : copies) {
    std::copy_n(from.bytes + copy.source_offset, copy.bytes, expected.begin() + copy.target_offset);
  }
  std::promise<absl::Status> pushed;
  (*link)->Push(copies, [&](absl::Status status) { pushed.set_value(std::move(status)); });
  REQUIRE(pushed.get_future().get().ok());
  CHECK(std::equal(expected.begin(), expected.end(), to.bytes));
}

struct Pair {
  Kind source, target;
  const char* by;  // UCX: part of the link's description
};
const Pair kPairs[] = {
    {Kind::kGuarded, Kind::kGuarded, "active messages"},     {Kind::kGuarded, Kind::kHost, ""},
    {Kind::kHost, Kind::kGuarded, "active messages"},        {Kind::kShared, Kind::kShared, "mapped device memory"},
    {Kind::kGuarded, Kind::kShared, "mapped device memory"}, {Kind::kHost, Kind::kShared, "active messages"}};

TEST_CASE("UcxTransport moves blocks between device memory and host memory") {
  for (const char* transports : {"", "tcp"}) {
    if (*transports != '\0') setenv("UCX_TLS", transports, 1);
    for (const Pair& pair : kPairs) {
      CAPTURE(transports, static_cast<int>(pair.source), static_cast<int>(pair.target));
      auto ours = UcxTransport::Create({}), theirs = UcxTransport::Create({});
      REQUIRE(ours.ok());
      REQUIRE(theirs.ok());
      const Side from = Make(*std::move(ours), pair.source, 1);
      const Side to = Make(*std::move(theirs), pair.target, 2);
      CheckPush(from, to, pair.by);
      CHECK(GuardedMemory::mapped() == 0);  // all mappings have ended
    }
    unsetenv("UCX_TLS");
  }
}

TEST_CASE("UcxTransport maps nothing of a peer that claims more device memory") {
  auto ours = UcxTransport::Create({}), theirs = UcxTransport::Create({});
  REQUIRE(ours.ok());
  REQUIRE(theirs.ok());
  const Side from = Make(*std::move(ours), Kind::kShared, 1);
  const Side to = Make(*std::move(theirs), Kind::kShared, 2);
  UcxDescriptor descriptor = *DecodeUcxDescriptor(to.transport->Descriptor());
  descriptor.slab_bytes += 64 << 20;
  descriptor.scratch_offset += 64 << 20;
  const std::vector<std::byte> before(to.bytes, to.bytes + kSideBytes);
  CHECK_FALSE(from.transport->Connect(Encode(descriptor)).ok());
  descriptor = *DecodeUcxDescriptor(to.transport->Descriptor());
  descriptor.shared = "not a handle";
  // The link pushes by messages, which need no mapping.
  const auto link = from.transport->Connect(Encode(descriptor));
  REQUIRE(link.ok());
  CHECK(absl::StrContains((*link)->Description(), "active messages"));
  CHECK(GuardedMemory::mapped() == 0);
  CHECK(std::equal(before.begin(), before.end(), to.bytes));
}

TEST_CASE("UcxLink ends its pushes once and is parked when a device copy hangs") {
  auto theirs = UcxTransport::Create({});
  REQUIRE(theirs.ok());
  const Side to = Make(*std::move(theirs), Kind::kShared, 2);
  const GuardedMemory source(kSideBytes + kSlabMarginBytes, /*shared=*/false);
  UcxParkedLinks parked;
  constexpr int64_t kScratch = kSideBytes + kSlabMarginBytes - kScratchBytes;
  auto link = UcxLink::Connect(
      {}, {.memory = source.slab(), .direct = false, .slab_bytes = kSideBytes, .scratch_offset = kScratch},
      *DecodeUcxDescriptor(to.transport->Descriptor()), parked);
  REQUIRE(link.ok());
  const std::vector<std::byte> before(to.bytes, to.bytes + kSideBytes);
  std::promise<void> resumes;
  GuardedMemory::gate() = resumes.get_future().share();
  std::atomic<int> unavailable = 0, results = 0;
  const auto push = [&](int64_t block) {
    const BlockCopy copy{block * kModelBlock, block * kModelBlock, kModelBlock};
    (*link)->Push({&copy, 1}, [&](const absl::Status& status) {
      unavailable += absl::IsUnavailable(status);
      ++results;
    });
  };
  push(0);  // hangs in the copy
  push(1);  // waits behind it
  link->reset();
  CHECK(results == 2);
  CHECK(unavailable == 2);
  CHECK(parked.DestroyClosed() == 1);

  resumes.set_value();
  Await("the end of the connection", [&] { return parked.DestroyClosed() == 0; });
  GuardedMemory::gate() = {};
  CHECK(GuardedMemory::mapped() == 0);
  CHECK(results == 2);
  // A push that has a result begins no copy.
  CHECK(std::equal(before.begin() + kModelBlock, before.end(), to.bytes + kModelBlock));
}

TEST_CASE("InProcessTransport moves blocks between device memory and host memory") {
  for (const Pair& pair : kPairs) {
    CAPTURE(static_cast<int>(pair.source), static_cast<int>(pair.target));
    const auto network = std::make_shared<InProcessNetwork>();
    const Side from = Make(std::make_unique<InProcessTransport>(network), pair.source, 3);
    const Side to = Make(std::make_unique<InProcessTransport>(network), pair.target, 4);
    CheckPush(from, to, "in-process");
  }
}

}  // namespace
}  // namespace baton
