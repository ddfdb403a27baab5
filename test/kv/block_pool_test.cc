#include "kv/block_pool.h"

#include <random>
#include <vector>

#include "catch.h"
#include "kv/block_table.h"
#include "seeds.h"

namespace baton {
namespace {

using Counts = BlockPool::Counts;

TEST_CASE("BlockPool frees a block when its last reference ends") {
  BlockPool pool(3);
  {
    BlockRef a = *pool.Allocate();
    BlockRef shared = pool.Share(a.id());
    CHECK(pool.ReferencesOf(a.id()) == 2);
    CHECK(pool.counts() == Counts{.free = 2, .referenced = 1, .total = 3});
    BlockRef moved = std::move(shared);
    a = std::move(moved);  // drops the old reference and keeps the moved one
    CHECK(pool.ReferencesOf(a.id()) == 1);
    pool.CheckInvariants();
  }
  CHECK(pool.counts() == Counts{.free = 3, .total = 3});
  pool.CheckInvariants();
}

TEST_CASE("BlockPool allocates nothing when it is exhausted") {
  BlockPool pool(1);
  const auto only = pool.Allocate();
  CHECK(only.has_value());
  CHECK_FALSE(pool.Allocate().has_value());
  CHECK_FALSE(BlockPool(0).Allocate().has_value());
}

TEST_CASE("BlockPool allocates neighbours when it is new and after a table's release") {
  BlockPool pool(8);
  for (int round = 0; round < 2; ++round) {
    BlockTable table;
    for (uint32_t i = 0; i < 4; ++i) {
      table.Append(*pool.Allocate());
      CHECK(table.ids()[i] == BlockId(i));
    }
  }
}

TEST_CASE("BlockPool does not allocate a block that a remote may still write") {
  BlockPool pool(2);
  BlockRef block = *pool.Allocate();
  const BlockId id = block.id();
  pool.Quarantine(std::move(block));
  CHECK(pool.counts() == Counts{.free = 1, .quarantined = 1, .total = 2});
  const auto other = pool.Allocate();
  CHECK(other->id() != id);
  CHECK_FALSE(pool.Allocate().has_value());
  pool.CheckInvariants();
  pool.EndQuarantine(id);
  CHECK(pool.Allocate()->id() == id);
  pool.CheckInvariants();
}

TEST_CASE("BlockPool caches a retained block until the block is forgotten") {
  BlockPool pool(1);
  BlockId id;
  {
    BlockRef block = *pool.Allocate();
    id = block.id();
    pool.Retain(id);
    CHECK(pool.counts().referenced == 1);
  }
  CHECK(pool.counts() == Counts{.cached = 1, .total = 1});
  CHECK_FALSE(pool.Allocate().has_value());
  {
    const BlockRef again = pool.Share(id);
    CHECK(pool.counts() == Counts{.referenced = 1, .total = 1});
  }
  pool.Forget(id);
  CHECK(pool.counts() == Counts{.free = 1, .total = 1});
  pool.CheckInvariants();
}

TEST_CASE("BlockPool frees a forgotten block when its last reference ends") {
  BlockPool pool(1);
  {
    const BlockRef block = *pool.Allocate();
    pool.Retain(block.id());
    pool.Forget(block.id());
    CHECK(pool.counts().referenced == 1);
  }
  CHECK(pool.counts().free == 1);
  pool.CheckInvariants();
}

TEST_CASE("BlockTable holds its blocks in order and releases them") {
  BlockPool pool(4);
  BlockTable table;
  for (int i = 0; i < 3; ++i) table.Append(*pool.Allocate());
  const BlockRef fourth = *pool.Allocate();
  table.Replace(1, pool.Share(fourth.id()));
  CHECK(std::vector<BlockId>(table.ids().begin(), table.ids().end()) ==
        std::vector<BlockId>{BlockId(0), BlockId(3), BlockId(2)});
  CHECK(pool.counts() == Counts{.free = 1, .referenced = 3, .total = 4});
  table.Truncate(1);
  CHECK(table.size() == 1);
  CHECK(pool.counts().referenced == 2);  // block 0 and the fourth
  table = BlockTable();
  CHECK(pool.counts().referenced == 1);
  pool.CheckInvariants();
}

TEST_CASE("BlockPool keeps free + referenced + cached + quarantined = total") {
  ForEachSeed(1, [](uint64_t seed) {
    std::mt19937 random(seed);
    constexpr int64_t kBlocks = 12;
    BlockPool pool(kBlocks);
    std::vector<BlockRef> refs;
    std::vector<int64_t> references(kBlocks);
    std::vector<bool> retained(kBlocks), quarantined(kBlocks);
    for (int step = 0; step < 5000; ++step) {
      const size_t b = random() % kBlocks;
      const BlockId id(static_cast<uint32_t>(b));
      switch (random() % 6) {
        case 0:
          if (auto block = pool.Allocate()) {
            const size_t got = block->id().value();
            REQUIRE((references[got] == 0 && !retained[got] && !quarantined[got]));
            ++references[got];
            refs.push_back(std::move(*block));
          }
          break;
        case 1:
          if (references[b] > 0 || retained[b]) {
            refs.push_back(pool.Share(id));
            ++references[b];
          }
          break;
        case 2:
          if (!refs.empty()) {
            std::swap(refs[random() % refs.size()], refs.back());
            --references[refs.back().id().value()];
            refs.pop_back();
          }
          break;
        case 3:
          if (references[b] > 0 && !retained[b]) {
            pool.Retain(id);
            retained[b] = true;
          } else if (retained[b]) {
            pool.Forget(id);
            retained[b] = false;
          }
          break;
        case 4:
          if (references[b] == 1 && !retained[b]) {
            for (size_t i = 0; i < refs.size(); ++i) {
              if (refs[i].id() != id) continue;
              std::swap(refs[i], refs.back());
              break;
            }
            pool.Quarantine(std::move(refs.back()));
            refs.pop_back();
            references[b] = 0;
            quarantined[b] = true;
          }
          break;
        case 5:
          if (quarantined[b]) {
            pool.EndQuarantine(id);
            quarantined[b] = false;
          }
          break;
      }
      Counts expected{.total = kBlocks};
      for (size_t i = 0; i < kBlocks; ++i) {
        REQUIRE(pool.ReferencesOf(BlockId(static_cast<uint32_t>(i))) == references[i]);
        ++(quarantined[i]      ? expected.quarantined
           : references[i] > 0 ? expected.referenced
           : retained[i]       ? expected.cached
                               : expected.free);
      }
      REQUIRE(pool.counts() == expected);
      pool.CheckInvariants();
    }
  });
}

}  // namespace
}  // namespace baton
