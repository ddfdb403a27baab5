// Tests of KV blocks that several ranks share and that one slab shows.
#include "kv/striped_slab.h"

#include <cstring>
#include <vector>

#include "catch.h"

namespace baton {
namespace {

constexpr int64_t kPlane = 40;
constexpr int64_t kPlanes = 12;

struct Group {
  std::vector<std::vector<std::byte>> memory;
  std::unique_ptr<StripedSlab> slab;
};

// Returns a group in which every byte of rank r is r + 1.
Group MakeGroup(const std::vector<int64_t>& widths) {
  Group group;
  std::vector<Stripe> stripes;
  int64_t begin = 0;
  for (const int64_t width : widths) {
    group.memory.emplace_back(width * kPlanes, static_cast<std::byte>(group.memory.size() + 1));
    stripes.push_back({std::span(group.memory.back()), {begin, begin + width}});
    begin += width;
  }
  auto slab = StripedSlab::Make(kPlane, std::move(stripes));
  REQUIRE(slab.ok());
  group.slab = *std::move(slab);
  return group;
}

}  // namespace

TEST_CASE("StripedSlab copies every rank's part out and into other planes") {
  const Group group = MakeGroup({16, 24});
  const Slab slab = group.slab->slab();
  CHECK(slab.size() == kPlane * kPlanes);
  CHECK_FALSE(slab.on_host());
  CHECK(slab.device() == nullptr);
  // Writes to planes 2 and 3, as if another group had computed their block.
  for (size_t rank = 0; rank < 2; ++rank) {
    const int64_t width = rank == 0 ? 16 : 24;
    for (int64_t i = 0; i < 2 * width; ++i) {
      const_cast<std::byte&>(group.memory[rank][2 * width + i]) = static_cast<std::byte>(100 * (rank + 1) + i);
    }
  }
  std::vector<std::byte> host(2 * kPlane);
  REQUIRE(slab.Copy(host.data(), slab.data() + 2 * kPlane, host.size()).ok());
  REQUIRE(slab.Copy(slab.data() + 10 * kPlane, host.data(), host.size()).ok());
  for (size_t rank = 0; rank < 2; ++rank) {
    const int64_t width = rank == 0 ? 16 : 24;
    const std::byte* memory = group.memory[rank].data();
    CHECK(std::memcmp(memory + 10 * width, memory + 2 * width, 2 * width) == 0);
    // The other planes keep their bytes.
    CHECK(memory[9 * width] == static_cast<std::byte>(rank + 1));
  }
}

}  // namespace baton
