#include "engine/prefill/session_protections.h"

#include <array>
#include <vector>

#include "catch.h"
#include "kv/block_layout.h"
#include "kv/block_pool.h"

namespace baton {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

// A full cache of two prompts of one block each. The first prompt is the least recently used one.
struct ProtectionWorld {
  BlockPool pool{2};
  RadixTree tree{pool};
  SessionProtections protections{tree};
  std::vector<BlockKey> first = Keys(1), second = Keys(2);

  ProtectionWorld() {
    for (const auto* keys : {&first, &second}) tree.Insert(*keys, *tree.Allocate());
  }
  static std::vector<BlockKey> Keys(TokenId token) {
    return BlockKeys(RootKey(std::array<uint8_t, 32>{}, ""), std::vector<TokenId>(kBlockTokens, token));
  }
  // Allocates a block, and returns the prompt whose block was evicted for it.
  const std::vector<BlockKey>* Evict() {
    const auto block = tree.Allocate();
    REQUIRE(block.has_value());
    tree.CheckInvariants();
    return tree.ReadyPrefix(first) == 0 ? &first : &second;
  }
};

TEST_CASE("A protected path is evicted last until its protection ends") {
  ProtectionWorld w;
  w.protections.Add(w.first, kStart + absl::Seconds(10));
  SECTION("when the protection has not ended") {
    w.protections.Tick(kStart + absl::Seconds(9));
    CHECK(w.Evict() == &w.second);
  }
  SECTION("when the protection has ended") {
    CHECK(w.protections.NextTick() == kStart + absl::Seconds(10));
    w.protections.Tick(kStart + absl::Seconds(10));
    CHECK(w.protections.size() == 0);
    CHECK(w.Evict() == &w.first);
  }
  SECTION("when EndAll has ended all protections") {
    w.protections.EndAll();
    CHECK(w.Evict() == &w.first);
  }
}

TEST_CASE("SessionProtections keeps one protection of a path, the latest") {
  ProtectionWorld w;
  for (int i = 0; i < 1000; ++i) w.protections.Add(w.first, kStart + absl::Seconds(10 + i));
  CHECK(w.protections.size() == 1);
  w.protections.Tick(kStart + absl::Seconds(1008));
  CHECK(w.Evict() == &w.second);
  w.protections.Tick(kStart + absl::Seconds(1009));
  CHECK(w.protections.size() == 0);
  CHECK(w.protections.NextTick() == absl::InfiniteFuture());
}

TEST_CASE("Protected paths are evicted in the order in which their protections end") {
  ProtectionWorld w;
  w.protections.Add(w.second, kStart + absl::Seconds(10));
  w.protections.Add(w.first, kStart + absl::Seconds(20));
  CHECK(w.Evict() == &w.second);
  w.protections.Tick(kStart + absl::Seconds(10));  // its path is already evicted
  CHECK(w.protections.size() == 1);
}

TEST_CASE("SessionProtections does not protect a path that is not in the cache") {
  ProtectionWorld w;
  w.protections.Add(ProtectionWorld::Keys(3), kStart);
  CHECK(w.protections.size() == 0);
}

}  // namespace
}  // namespace baton
