#include "kv/block_digest.h"

#include <random>

#include "absl/strings/escaping.h"
#include "catch.h"
#include "kv/striped_slab.h"

namespace baton {
namespace {

constexpr KvLayout kLayout{.layers = 3, .kv_heads = 4, .head_dim = 2, .format = KvFormat::kBf16};

std::vector<std::byte> RandomBytes(int64_t bytes) {
  std::mt19937 random(1);
  std::vector<std::byte> made(static_cast<size_t>(bytes));
  for (std::byte& byte : made) byte = static_cast<std::byte>(random());
  return made;
}

TEST_CASE("DigestsOf returns the SHA-256 of a block, which changes with any bit") {
  std::vector<std::byte> memory(static_cast<size_t>(2 * kLayout.BlockBytes()));
  const std::vector blocks{BlockId(1), BlockId(0)};
  const auto before = DigestsOf(Slab(memory), kLayout, blocks).value();
  REQUIRE(before.size() == 2);
  CHECK(before[0] == before[1]);
  // The digest that sha256sum gives for 1536 zeros.
  CHECK(absl::BytesToHexString({reinterpret_cast<const char*>(before[0].data()), before[0].size()}) ==
        "80422bc3d307b4a25bdafcc84ac7fb01cb55a09810e8b0f37bb12e0edb5c48ca");
  memory.back() ^= std::byte{0x80};
  const auto after = DigestsOf(Slab(memory), kLayout, blocks).value();
  CHECK(after[0] != before[0]);
  CHECK(after[1] == before[1]);
  CHECK(DigestsOf(Slab(memory), kLayout, {})->empty());
}

TEST_CASE("DigestsOf returns the digests of whole blocks when ranks share them") {
  constexpr int64_t kBlocks = 3;
  std::vector<std::byte> whole = RandomBytes(kBlocks * kLayout.BlockBytes());
  const std::vector blocks{BlockId(2), BlockId(0)};
  const auto expected = DigestsOf(Slab(whole), kLayout, blocks).value();
  const int64_t plane = kLayout.PlaneBytes();
  for (const int64_t cut : {plane / 4, plane / 2}) {
    const std::vector<StripeRange> ranges{{0, cut}, {cut, plane}};
    std::vector<std::vector<std::byte>> parts(2);
    std::vector<Stripe> stripes;
    for (size_t rank = 0; rank < 2; ++rank) {
      for (int64_t at = 0; at < std::ssize(whole); at += plane) {
        parts[rank].insert(parts[rank].end(), whole.begin() + at + ranges[rank].begin,
                           whole.begin() + at + ranges[rank].end);
      }
      stripes.push_back({Slab(parts[rank]), ranges[rank]});
    }
    const auto shared = StripedSlab::Make(plane, std::move(stripes)).value();
    CHECK(DigestsOf(shared->slab(), kLayout, blocks).value() == expected);
  }
}

}  // namespace
}  // namespace baton
