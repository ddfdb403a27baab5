// Runs a world under random events, for one seed after the other.
#pragma once

#include <concepts>
#include <cstdint>
#include <vector>

#include "catch.h"
#include "seeds.h"
#include "world/accounts.h"

namespace baton {

// A class of the random choices of one seed.
template <typename T>
concept RandomWorld = std::constructible_from<T, uint64_t> && requires(T world) {
  // Makes the next random event; false if it was the last one.
  { world.Event() } -> std::same_as<bool>;
  world.CheckInvariants();
  world.Settle();  // lets everything end, and checks that nothing is left
};
// A world whose core has KV blocks.
template <typename T>
concept HasPools = requires(T world) {
  { world.Pools() } -> std::same_as<std::vector<BlockPool::Counts>>;
};

// Runs a World with each of `count` seeds and calls `ended` at the end of each run. The invariants
// hold after each event. At the end each pool has all blocks back, if the world has pools.
template <RandomWorld World, typename Ended>
Seeds ForEachWorld(uint64_t count, Ended&& ended) {
  return ForEachSeed(count, [&](uint64_t seed) {
    World world(seed);
    for (bool more = true; more;) {
      more = world.Event();
      world.CheckInvariants();
    }
    world.Settle();
    world.CheckInvariants();
    if constexpr (HasPools<World>) {
      for (const BlockPool::Counts& counts : world.Pools()) REQUIRE(AllBlocksBack(counts));
    }
    ended(world);
  });
}

}  // namespace baton
