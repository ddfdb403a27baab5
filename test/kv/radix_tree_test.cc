#include "kv/radix_tree.h"

#include <array>
#include <vector>

#include "catch.h"
#include "kv/block_layout.h"

namespace baton {
namespace {

using State = RadixTree::State;

// Returns the keys of a prompt whose block i holds the token blocks[i] 16 times.
std::vector<BlockKey> Path(std::vector<TokenId> blocks, std::string_view cache_domain = "") {
  std::vector<TokenId> tokens;
  for (TokenId token : blocks) tokens.insert(tokens.end(), kBlockTokens, token);
  return BlockKeys(RootKey(std::array<uint8_t, 32>{}, cache_domain), tokens);
}

std::span<const BlockKey> First(const std::vector<BlockKey>& keys, size_t count) { return {keys.data(), count}; }

// Allocates and inserts the missing blocks of the path. Returns references to all its blocks.
std::vector<BlockRef> Fill(RadixTree& tree, const std::vector<BlockKey>& keys) {
  std::vector<BlockRef> held = tree.Match(keys);
  while (held.size() < keys.size()) {
    BlockRef block = *tree.Allocate();
    held.push_back(tree.Insert(First(keys, held.size() + 1), std::move(block)));
  }
  return held;
}

TEST_CASE("RadixTree finds the longest ready prefix, only in the same cache domain") {
  BlockPool pool(8);
  RadixTree tree(pool);
  const auto held = Fill(tree, Path({1, 2, 3}));
  CHECK(tree.ReadyPrefix(Path({1, 2, 3})) == 3);
  CHECK(tree.ReadyPrefix(Path({1, 2, 9, 3})) == 2);
  CHECK(tree.ReadyPrefix(Path({2, 3})) == 0);
  CHECK(tree.ReadyPrefix(Path({1, 2, 3}, "other tenant")) == 0);
  const auto match = tree.Match(Path({1, 2, 9}));
  REQUIRE(match.size() == 2);
  CHECK(match[0].id() == held[0].id());
  CHECK(match[1].id() == held[1].id());
  tree.CheckInvariants();
}

TEST_CASE("RadixTree shows a promised node but matches it only when it is ready") {
  BlockPool pool(2);
  RadixTree tree(pool);
  const auto keys = Path({1, 2});
  const BlockRef a = *tree.Allocate(), b = *tree.Allocate();
  tree.Promise(First(keys, 1), a);
  tree.Promise(keys, b);
  CHECK(tree.Find(keys[1]) == State::kPromised);
  CHECK(tree.Match(keys).empty());
  CHECK(tree.Acquire(keys[1]).id() == b.id());
  tree.CheckInvariants();
  tree.MakeReady(keys[0]);
  CHECK(tree.Match(keys).size() == 1);
  tree.MakeReady(keys[1]);
  CHECK(tree.Match(keys).size() == 2);
  tree.CheckInvariants();
}

TEST_CASE("RadixTree accepts a second promise of a key when the first was broken") {
  BlockPool pool(2);
  RadixTree tree(pool);
  const auto keys = Path({1});
  std::optional<BlockRef> first = tree.Allocate();
  tree.Promise(keys, *first);
  std::optional<BlockRef> waiting = tree.Acquire(keys[0]);
  tree.Break(keys[0]);
  CHECK(tree.Find(keys[0]) == State::kAbsent);
  first.reset();
  CHECK(pool.counts().referenced == 1);  // the second reference outlives the promise
  waiting = tree.Allocate();
  tree.Promise(keys, *waiting);
  tree.MakeReady(keys[0]);
  waiting.reset();
  CHECK(pool.counts() == BlockPool::Counts{.free = 1, .cached = 1, .total = 2});
  tree.CheckInvariants();
}

TEST_CASE("RadixTree::Insert returns the first block when a path is inserted twice") {
  BlockPool pool(2);
  RadixTree tree(pool);
  const auto keys = Path({1});
  const BlockRef first = tree.Insert(keys, *tree.Allocate());
  const BlockRef second = tree.Insert(keys, *tree.Allocate());
  CHECK(second.id() == first.id());
  CHECK(pool.counts() == BlockPool::Counts{.free = 1, .referenced = 1, .total = 2});
  tree.CheckInvariants();
}

TEST_CASE("RadixTree evicts the least recently used leaf first and no held block") {
  BlockPool pool(4);
  RadixTree tree(pool);
  Fill(tree, Path({1, 2}));
  Fill(tree, Path({3}));
  const auto held = Fill(tree, Path({4}));
  Fill(tree, Path({1, 2}));  // uses {1, 2} again, so {3} is now the oldest
  CHECK(tree.Available() == 3);
  const auto a = tree.Allocate();
  CHECK(tree.Find(Path({3})[0]) == State::kAbsent);
  const auto b = tree.Allocate();
  CHECK(tree.ReadyPrefix(Path({1, 2})) == 1);  // evicted the leaf and kept its parent
  const auto c = tree.Allocate();
  CHECK(tree.ReadyPrefix(Path({1, 2})) == 0);
  CHECK(tree.Available() == 0);
  CHECK_FALSE(tree.Allocate().has_value());
  CHECK(tree.ReadyPrefix(Path({4})) == 1);
  CHECK(tree.evictions() == 3);
  tree.CheckInvariants();
}

TEST_CASE("RadixTree keeps a reused path longer than single prompts, but not for ever") {
  BlockPool pool(4);
  RadixTree tree(pool);
  Fill(tree, Path({1, 2}));
  Fill(tree, Path({1, 2}));  // the session's next request
  for (TokenId once = 10; once < 14; ++once) {
    Fill(tree, Path({once}));
    CHECK(tree.ReadyPrefix(Path({1, 2})) == 2);
  }
  Fill(tree, Path({1, 2}));  // the session is still active
  for (TokenId once = 20; once < 24; ++once) Fill(tree, Path({once}));
  CHECK(tree.ReadyPrefix(Path({1, 2})) == 2);
  for (TokenId once = 30; once < 34; ++once) Fill(tree, Path({once}));
  CHECK(tree.ReadyPrefix(Path({1, 2})) == 0);
  tree.CheckInvariants();
}

TEST_CASE("RadixTree evicts a path that was only shared as if it was not used") {
  BlockPool pool(3);
  RadixTree tree(pool);
  Fill(tree, Path({1}));
  Fill(tree, Path({2}));
  Fill(tree, Path({2}));
  {
    const BlockRef shared = tree.Share(Path({1})[0]);
    Fill(tree, Path({3}));
    // {4} replaces {3}, because {1} is held.
    Fill(tree, Path({4}));
    CHECK(tree.ReadyPrefix(Path({1})) == 1);
  }
  Fill(tree, Path({5}));
  CHECK(tree.ReadyPrefix(Path({1})) == 0);
  CHECK(tree.ReadyPrefix(Path({2})) == 1);
  tree.CheckInvariants();
}

TEST_CASE("RadixTree evicts protected blocks last, the last needed of them first") {
  BlockPool pool(4);
  RadixTree tree(pool);
  for (const TokenId prompt : {1, 2, 3, 4}) Fill(tree, Path({prompt}));
  const auto job = [](int64_t seconds) { return Protection::OfQueuedJob(0, absl::FromUnixSeconds(seconds), 0); };
  const auto is_there = [&](TokenId prompt) { return tree.ReadyPrefix(Path({prompt})) == 1; };
  // Without protection, {1} would be evicted next, because it is the least recently used. Two jobs
  // protect {1}, of which the first counts.
  tree.Protect(Path({1}).back(), job(10));
  tree.Protect(Path({2}).back(), job(11));
  tree.Protect(Path({1}).back(), job(12));
  tree.CheckInvariants();
  SECTION("when all jobs still wait") {
    std::vector<BlockRef> others;
    for (const TokenId goes : {3, 4, 2, 1}) {
      CHECK(is_there(goes));
      others.push_back(*tree.Allocate());
      CHECK_FALSE(is_there(goes));
    }
  }
  SECTION("when the first of two jobs of a path ends") {
    // Another request uses {1}.
    tree.Match(Path({1}));
    tree.Unprotect(job(10));
    std::vector<BlockRef> others;
    for (int i = 0; i < 3; ++i) others.push_back(*tree.Allocate());
    CHECK_FALSE(is_there(1));
    CHECK(is_there(2));
  }
  SECTION("when the only job of a path ends") {
    tree.Unprotect(job(13));  // no job has protected it
    tree.Unprotect(job(11));
    std::vector<BlockRef> others;
    for (int i = 0; i < 3; ++i) others.push_back(*tree.Allocate());
    CHECK(is_there(1));
    CHECK_FALSE(is_there(2));
  }
  tree.CheckInvariants();
}

TEST_CASE("RadixTree keeps the rest of a protected path protected after its end goes") {
  BlockPool pool(5);
  RadixTree tree(pool);
  const auto job = [](int64_t seconds) { return Protection::OfQueuedJob(0, absl::FromUnixSeconds(seconds), 0); };
  Fill(tree, Path({1, 2}));
  Fill(tree, Path({1, 3}));
  Fill(tree, Path({4, 5}));
  tree.Protect(Path({1, 2}).back(), job(11));
  tree.Protect(Path({1, 3}).back(), job(12));
  tree.Protect(Path({4, 5}).back(), job(10));
  std::vector<BlockRef> others;
  const auto left = [&] {
    others.push_back(*tree.Allocate());
    tree.CheckInvariants();
    return std::tuple(tree.ReadyPrefix(Path({1, 2})), tree.ReadyPrefix(Path({1, 3})), tree.ReadyPrefix(Path({4, 5})));
  };
  CHECK(left() == std::tuple(2, 1, 2));  // evicts {1, 3}, which is needed last
  CHECK(left() == std::tuple(1, 1, 2));
  SECTION("when no protection ends") {
    CHECK(left() == std::tuple(0, 0, 2));
    CHECK(left() == std::tuple(0, 0, 1));
    CHECK(left() == std::tuple(0, 0, 0));
    CHECK_FALSE(tree.Allocate().has_value());
    tree.Unprotect(job(10));  // its path is evicted already
  }
  SECTION("when protections end one by one") {
    tree.Unprotect(job(10));
    CHECK(left() == std::tuple(1, 1, 1));
    tree.Unprotect(job(11));
    CHECK(left() == std::tuple(1, 1, 0));
    tree.Unprotect(job(12));
    CHECK(left() == std::tuple(0, 0, 0));
  }
}

TEST_CASE("RadixTree::CachedInPrefix counts the blocks of a prefix without a reference") {
  BlockPool pool(4);
  RadixTree tree(pool);
  const auto held = Fill(tree, Path({1, 2}));
  Fill(tree, Path({1, 2, 3, 4}));
  CHECK(tree.CachedInPrefix(Path({1, 2, 3, 9})) == 1);
  CHECK(tree.CachedInPrefix(Path({1, 2, 3, 4})) == 2);
}

TEST_CASE("RadixTree::UnprotectedInPrefix leaves out blocks above a protected one") {
  BlockPool pool(6);
  RadixTree tree(pool);
  const auto held = Fill(tree, Path({1}));
  Fill(tree, Path({1, 2, 3, 4, 5}));
  const Protection protection = Protection::OfQueuedJob(0, absl::FromUnixSeconds(1), 0);
  CHECK(tree.UnprotectedInPrefix(Path({1, 2, 3, 4, 5})) == 4);
  tree.Protect(Path({1, 2, 3}).back(), protection);
  CHECK(tree.UnprotectedInPrefix(Path({1, 2, 3, 4, 5})) == 2);
  CHECK(tree.UnprotectedInPrefix(Path({1, 2, 3, 9})) == 0);
  CHECK(tree.UnprotectedInPrefix(Path({1, 2})) == 1);  // No node of this prefix has the protection.
  tree.Unprotect(protection);
  CHECK(tree.UnprotectedInPrefix(Path({1, 2, 3, 4, 5})) == 4);
}

TEST_CASE("RadixTree::Unprotected counts a block above several others") {
  BlockPool pool(6);
  RadixTree tree(pool);
  Fill(tree, Path({1, 2}));
  Fill(tree, Path({1, 3}));
  CHECK(tree.Unprotected(9) == 3);
  CHECK(tree.Unprotected(2) == 2);
  const Protection protection = Protection::OfQueuedJob(0, absl::FromUnixSeconds(1), 0);
  tree.Protect(Path({1, 2}).back(), protection);
  CHECK(tree.Unprotected(9) == 1);
  tree.Unprotect(protection);
  const auto held = Fill(tree, Path({1, 3}));
  CHECK(tree.Unprotected(9) == 1);
}

}  // namespace
}  // namespace baton
