#include "engine/handoff/handoff_blocks.h"

#include <algorithm>
#include <random>
#include <vector>

#include "catch.h"
#include "engine/handoff/constants.h"
#include "seeds.h"

namespace baton {
namespace {

constexpr int64_t kSlabBlocks = 100;

std::vector<BlockCopy> Take(HandoffBlocks& blocks, int32_t index) {
  std::vector<BlockCopy> copies;
  blocks.TakeCopies(index, copies);
  blocks.CheckInvariants();
  return copies;
}

}  // namespace

TEST_CASE("HandoffBlocks takes each layer of a missing block once") {
  HandoffBlocks blocks(3, kLayout);
  REQUIRE(blocks.SetMissing(std::vector<MissingBlock>{{1, BlockId(51)}}, kSlabBlocks, "d").ok());
  CHECK(Take(blocks, 1).empty());
  blocks.SetReady({1, BlockId(31), 1});
  std::vector<BlockCopy> copies = Take(blocks, 1);
  REQUIRE(copies.size() == 1);
  CHECK(copies[0].source_offset == 31 * kLayout.BlockBytes());
  CHECK(copies[0].target_offset == 51 * kLayout.BlockBytes());
  CHECK(copies[0].bytes == kLayout.LayerBytes());
  CHECK(Take(blocks, 1).empty());
  CHECK_FALSE(blocks.posted());

  blocks.SetReady({1, BlockId(31), kLayout.layers});
  copies = Take(blocks, 1);
  REQUIRE(copies.size() == 1);
  CHECK(copies[0].source_offset == 31 * kLayout.BlockBytes() + kLayout.LayerBytes());
  CHECK(copies[0].target_offset == 51 * kLayout.BlockBytes() + kLayout.LayerBytes());
  CHECK(copies[0].bytes == (kLayout.layers - 1) * kLayout.LayerBytes());
  CHECK(blocks.posted());
  CHECK(blocks.TakePosted() == std::vector<int32_t>{1});
  CHECK(blocks.TakePosted().empty());
}

TEST_CASE("HandoffBlocks takes no block that the decode worker holds") {
  HandoffBlocks blocks(2, kLayout);
  blocks.SetReady({0, BlockId(30), kLayout.layers});
  CHECK(Take(blocks, 0).empty());
  REQUIRE(blocks.SetMissing({}, kSlabBlocks, "d").ok());
  CHECK(blocks.posted());
  CHECK(Take(blocks, 0).empty());
  CHECK(blocks.missing() == 0);
}

TEST_CASE("HandoffBlocks refuses a reply with impossible blocks or targets") {
  const std::pair<std::vector<MissingBlock>, const char*> cases[] = {
      {{{1, BlockId(5)}, {0, BlockId(6)}},
       "decode worker d lists block 0 as missing after block 1, expected ascending indices below 3"},
      {{{1, BlockId(5)}, {1, BlockId(6)}},
       "decode worker d lists block 1 as missing after block 1, expected ascending indices below 3"},
      {{{-1, BlockId(5)}},
       "decode worker d lists block -1 as missing after block -1, expected ascending indices below 3"},
      {{{3, BlockId(5)}},
       "decode worker d lists block 3 as missing after block -1, expected ascending indices below 3"},
      {{{0, BlockId(5)}, {1, BlockId(5)}},
       "decode worker d names target block 5 twice or beyond its slab of 100 blocks"},
      {{{0, BlockId(100)}}, "decode worker d names target block 100 twice or beyond its slab of 100 blocks"},
  };
  for (const auto& [missing, said] : cases) {
    HandoffBlocks blocks(3, kLayout);
    CHECK(blocks.SetMissing(missing, kSlabBlocks, "d") == absl::InternalError(said));
    CHECK(blocks.missing() == 0);
    CHECK(blocks.posted());
    blocks.CheckInvariants();  // and no block is marked as missing
  }
}

TEST_CASE("HandoffBlocks returns digests in the order of the missing blocks") {
  HandoffBlocks blocks(4, kLayout);
  REQUIRE(
      blocks.SetMissing(std::vector<MissingBlock>{{0, BlockId(1)}, {2, BlockId(2)}, {3, BlockId(3)}}, kSlabBlocks, "d")
          .ok());
  const auto digest = [](uint8_t first) {
    BlockDigest made{};
    made[0] = first;
    return made;
  };
  blocks.SetDigests(std::vector<int32_t>{3}, std::vector<BlockDigest>{digest(13)});
  blocks.SetDigests(std::vector<int32_t>{2, 0}, std::vector<BlockDigest>{digest(12), digest(10)});
  CHECK(blocks.Digests() == std::vector<BlockDigest>{digest(10), digest(12), digest(13)});
}

TEST_CASE("HandoffBlocks takes all bytes of missing blocks once in random steps") {
  ForEachSeed(20, [](uint64_t seed) {
    std::mt19937_64 random(seed);
    constexpr int32_t kBlocks = 8;
    HandoffBlocks blocks(kBlocks, kLayout);
    std::vector<MissingBlock> missing;
    for (int32_t i = 0; i < kBlocks; ++i) {
      if (random() % 3 != 0) missing.push_back({i, BlockId(static_cast<uint32_t>(50 + i))});
    }
    std::vector<int> taken(static_cast<size_t>(kBlocks * kLayout.layers));
    std::vector<int64_t> ready(kBlocks);
    bool is_set = false;
    while (!is_set || !blocks.posted()) {
      std::vector<BlockCopy> copies;
      if (!is_set && random() % 4 == 0) {
        REQUIRE(blocks.SetMissing(missing, kSlabBlocks, "d").ok());
        is_set = true;
        for (const MissingBlock& block : missing) blocks.TakeCopies(block.index, copies);
      }
      const auto index = static_cast<int32_t>(random() % kBlocks);
      ready[static_cast<size_t>(index)] = std::min<int64_t>(kLayout.layers, ready[static_cast<size_t>(index)] + 1);
      blocks.SetReady({index, BlockId(static_cast<uint32_t>(index)), ready[static_cast<size_t>(index)]});
      if (is_set) blocks.TakeCopies(index, copies);
      blocks.CheckInvariants();
      for (const BlockCopy& copy : copies) {
        for (int64_t at = 0; at < copy.bytes; at += kLayout.LayerBytes()) {
          ++taken[static_cast<size_t>((copy.source_offset + at) / kLayout.LayerBytes())];
        }
      }
    }
    for (int32_t i = 0; i < kBlocks; ++i) {
      const bool is_missing = std::ranges::any_of(missing, [&](const MissingBlock& block) { return block.index == i; });
      for (int64_t layer = 0; layer < kLayout.layers; ++layer) {
        CHECK(taken[static_cast<size_t>(i * kLayout.layers + layer)] == (is_missing ? 1 : 0));
      }
    }
  });
}

}  // namespace baton
