#include "transport/write_guard.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/logging.h"
#include "catch.h"

namespace baton {
namespace {

constexpr KvLayout kLayout{.layers = 2, .kv_heads = 1, .head_dim = 2, .format = KvFormat::kBf16};
const int64_t kBlock = kLayout.BlockBytes();
const int64_t kPlane = kLayout.PlaneBytes();
constexpr int64_t kBlocks = 8;

class Guarded {
 public:
  Guarded() : memory_(static_cast<size_t>(kBlocks * kBlock), std::byte{7}) { spdlog::set_level(spdlog::level::off); }
  ~Guarded() {
    guard.CheckInvariants();
    spdlog::set_level(spdlog::level::info);
  }

  WriteKey Grant(const std::vector<BlockId>& blocks) { return guard.Grant(blocks); }
  absl::StatusCode Write(const WriteKey& write_key, int64_t target, int64_t bytes) {
    const std::string data(static_cast<size_t>(bytes), 'x');
    return guard.Write(write_key, std::vector<BlockCopy>{{0, target, bytes}}, data).code();
  }
  bool Written(int64_t begin, int64_t end) const { return All(begin, end, std::byte{'x'}); }
  bool Untouched(int64_t begin, int64_t end) const { return All(begin, end, std::byte{7}); }
  bool Untouched() const { return Untouched(0, kBlocks * kBlock); }

 private:
  bool All(int64_t begin, int64_t end, std::byte value) const {
    return std::all_of(memory_.begin() + begin, memory_.begin() + end, [=](std::byte b) { return b == value; });
  }
  std::vector<std::byte> memory_;

 public:
  WriteGuard guard{Slab(memory_), kLayout};
};

TEST_CASE("WriteGuard lets a write key write its blocks, whole or in part, and no others") {
  Guarded slab;
  const WriteKey write_key = slab.Grant({BlockId(2), BlockId(3), BlockId(6)});
  CHECK(slab.Write(write_key, 2 * kBlock, 2 * kBlock) == absl::StatusCode::kOk);
  CHECK(slab.Write(write_key, 6 * kBlock + kPlane, kPlane) == absl::StatusCode::kOk);
  CHECK(slab.Untouched(0, 2 * kBlock));
  CHECK(slab.Written(2 * kBlock, 4 * kBlock));
  CHECK(slab.Untouched(4 * kBlock, 6 * kBlock + kPlane));
  CHECK(slab.Written(6 * kBlock + kPlane, 6 * kBlock + 2 * kPlane));
  CHECK(slab.Untouched(6 * kBlock + 2 * kPlane, kBlocks * kBlock));
  CHECK(slab.guard.refused() == 0);
}

TEST_CASE("WriteGuard refuses a write without the block's write key and changes nothing") {
  Guarded slab;
  const WriteKey write_key = slab.Grant({{BlockId(2)}});
  const WriteKey other = slab.Grant({{BlockId(3)}});
  CHECK(write_key.bits != other.bits);
  CHECK(write_key.bits != WriteKeyBits{});
  std::vector<WriteKey> forged = {
      {}, {write_key.id, {}}, {write_key.id, other.bits}, {other.id, write_key.bits}, {77, write_key.bits}};
  for (size_t i = 0; i < write_key.bits.size(); ++i) {
    forged.push_back(write_key);
    forged.back().bits[i] ^= 1;
  }
  for (const WriteKey& one : forged) {
    CHECK(slab.Write(one, 2 * kBlock, kBlock) == absl::StatusCode::kPermissionDenied);
  }
  CHECK(slab.Write(other, 2 * kBlock, kBlock) == absl::StatusCode::kPermissionDenied);
  CHECK(slab.Untouched());
  CHECK(slab.guard.refused() == std::ssize(forged) + 1);
}

TEST_CASE("WriteGuard refuses a write whole when a part leaves its blocks, slab or planes") {
  Guarded slab;
  const WriteKey write_key = slab.Grant({BlockId(2), BlockId(7)});
  CHECK(slab.Write(write_key, kBlock, kBlock) == absl::StatusCode::kPermissionDenied);
  // These writes include block 3 and block 1.
  CHECK(slab.Write(write_key, 2 * kBlock, 2 * kBlock) == absl::StatusCode::kPermissionDenied);
  CHECK(slab.Write(write_key, 2 * kBlock - kPlane, 2 * kPlane) == absl::StatusCode::kPermissionDenied);
  CHECK(slab.Write(write_key, 7 * kBlock, 2 * kBlock) == absl::StatusCode::kInvalidArgument);
  CHECK(slab.Write(write_key, -kBlock, kBlock) == absl::StatusCode::kInvalidArgument);
  CHECK(slab.Write(write_key, INT64_MAX - kPlane + 1, kPlane) == absl::StatusCode::kInvalidArgument);
  CHECK(slab.Write(write_key, 2 * kBlock + 1, kPlane) == absl::StatusCode::kInvalidArgument);
  CHECK(slab.Write(write_key, 2 * kBlock, kPlane - 1) == absl::StatusCode::kInvalidArgument);
  CHECK(slab.Write(write_key, 2 * kBlock, 0) == absl::StatusCode::kInvalidArgument);
  const std::string data(static_cast<size_t>(2 * kBlock), 'x');
  // In the first list, one of two copies would be right. The second reads bytes beyond the data,
  // and the third reads bytes before it.
  const std::vector<std::vector<BlockCopy>> bad = {{{0, 2 * kBlock, kBlock}, {kBlock, 4 * kBlock, kBlock}},
                                                   {{kBlock + kPlane, 2 * kBlock, kBlock}},
                                                   {{-kPlane, 2 * kBlock, kBlock}}};
  for (const auto& copies : bad) CHECK_FALSE(slab.guard.Write(write_key, copies, data).ok());
  CHECK(slab.Untouched());
  CHECK(slab.guard.refused() == 12);
}

TEST_CASE("WriteGuard refuses a revoked write key and grants its blocks under another") {
  Guarded slab;
  const WriteKey write_key = slab.Grant({{BlockId(2)}});
  slab.guard.Revoke(write_key.id);
  slab.guard.Revoke(write_key.id);
  CHECK(slab.guard.valid_keys() == 0);
  CHECK(slab.Write(write_key, 2 * kBlock, kBlock) == absl::StatusCode::kPermissionDenied);
  const WriteKey next = slab.Grant({{BlockId(2)}});
  CHECK(next.id != write_key.id);
  CHECK(next.bits != write_key.bits);
  CHECK(slab.Write(write_key, 2 * kBlock, kBlock) == absl::StatusCode::kPermissionDenied);
  CHECK(slab.Untouched());
  CHECK(slab.Write(next, 2 * kBlock, kBlock) == absl::StatusCode::kOk);
}

TEST_CASE("WriteGuard does not count writes with recently revoked write keys as forged") {
  Guarded slab;
  const WriteKey first = slab.Grant({{BlockId(2)}});
  slab.guard.Revoke(first.id);
  CHECK(slab.Write(first, 2 * kBlock, kBlock) == absl::StatusCode::kPermissionDenied);
  CHECK(slab.guard.refused() == 0);
  CHECK(slab.Write({first.id, {}}, 2 * kBlock, kBlock) == absl::StatusCode::kPermissionDenied);
  CHECK(slab.guard.refused() == 1);
  WriteKey last;
  for (int i = 0; i < 1024; ++i) {
    last = slab.Grant({{BlockId(2)}});
    slab.guard.Revoke(last.id);
  }
  CHECK(slab.Write(last, 2 * kBlock, kBlock) == absl::StatusCode::kPermissionDenied);
  CHECK(slab.guard.refused() == 1);
  CHECK(slab.Write(first, 2 * kBlock, kBlock) == absl::StatusCode::kPermissionDenied);
  CHECK(slab.guard.refused() == 2);
  CHECK(slab.Untouched());
}

// Memory that counts its calls.
class CountingMemory final : public SlabAccess {
 public:
  absl::Status Copy(std::span<const MemoryCopy> copies) const override {
    ++calls;
    runs += std::ssize(copies);
    return absl::OkStatus();
  }
  absl::StatusOr<HostMemory> AllocateHost(size_t) const override { return absl::UnimplementedError("not asked for"); }
  mutable int64_t calls = 0, runs = 0;
};

TEST_CASE("WriteGuard copies all parts of a message at once") {
  CountingMemory memory;
  std::vector<std::byte> addresses(static_cast<size_t>(kBlocks * kBlock));
  WriteGuard guard(Slab(addresses, &memory), kLayout);
  const WriteKey write_key = guard.Grant(std::vector{BlockId(2), BlockId(5)});
  const std::string data(static_cast<size_t>(3 * kPlane), 'x');
  const std::vector<BlockCopy> copies = {{0, 2 * kBlock, 2 * kPlane}, {2 * kPlane, 5 * kBlock, kPlane}};
  CHECK(guard.Write(write_key, copies, data).ok());
  CHECK(memory.calls == 1);
  CHECK(memory.runs == 3);  // one for each plane
}

// Memory whose copy ends only after the write key of the write has been revoked.
class SlowMemory final : public SlabAccess {
 public:
  absl::Status Copy(std::span<const MemoryCopy>) const override {
    begun = true;
    while (guard->valid_keys() > 0) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    ended = true;
    return absl::OkStatus();
  }
  absl::StatusOr<HostMemory> AllocateHost(size_t) const override { return absl::UnimplementedError("not asked for"); }
  const WriteGuard* guard = nullptr;
  mutable std::atomic<bool> begun = false, ended = false;
};

TEST_CASE("WriteGuard revokes a write key after a write in progress has ended") {
  SlowMemory memory;
  std::vector<std::byte> addresses(static_cast<size_t>(kBlocks * kBlock));
  WriteGuard guard(Slab(addresses, &memory), kLayout);
  memory.guard = &guard;
  const WriteKey write_key = guard.Grant(std::vector{BlockId(2)});
  absl::Status status = absl::UnknownError("");
  std::thread writer([&] {
    const std::string data(static_cast<size_t>(kPlane), 'x');
    status = guard.Write(write_key, std::vector<BlockCopy>{{0, 2 * kBlock, kPlane}}, data);
  });
  while (!memory.begun) std::this_thread::yield();
  guard.Revoke(write_key.id);
  CHECK(memory.ended);
  writer.join();
  CHECK(status.ok());
}

}  // namespace
}  // namespace baton
