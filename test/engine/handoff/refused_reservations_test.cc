#include "engine/handoff/refused_reservations.h"

#include <random>

#include "catch.h"
#include "seeds.h"

namespace baton {
namespace {

// The refused reservations of a worker with `free` free blocks, whose sequences do not grow.
struct Refused {
  int64_t Take() {
    return refused.TakeFitting([this](const ReserveRequest&, int64_t blocks_now) { return blocks_now <= free; });
  }
  void Add(int64_t blocks) { refused.Add({.kv_tokens = 16}, blocks); }

  int64_t free = 0;
  RefusedReservations refused;
};

}  // namespace

TEST_CASE("RefusedReservations counts how many refused requests fit, the smallest first") {
  Refused r;
  for (const int64_t blocks : {9, 4, 3}) r.Add(blocks);
  r.free = 8;
  r.refused.RoomMayHaveCome();
  CHECK(r.Take() == 2);
  r.refused.RoomMayHaveCome();
  CHECK(r.Take() == 0);
  r.free = 9;
  CHECK(r.Take() == 1);
}

TEST_CASE("RefusedReservations counts the growth of requests that fit") {
  Refused r;
  r.refused.Add({.kv_tokens = 16, .expected_new_tokens = 32}, 1);
  r.Add(4);
  r.free = 6;
  r.refused.RoomMayHaveCome();
  CHECK(r.Take() == 1);
}

TEST_CASE("RefusedReservations reports again only after RoomMayHaveCome") {
  Refused r;
  r.free = 8;
  r.Add(1);
  CHECK(r.Take() == 0);
  r.refused.RoomMayHaveCome();
  CHECK(r.Take() == 1);
  r.Add(1);
  CHECK(r.Take() == 0);
  r.refused.RoomMayHaveCome();
  CHECK(r.Take() == 1);
}

TEST_CASE("RefusedReservations forgets the largest beyond 65,536") {
  Refused r;
  r.free = 1 << 20;
  r.Add(r.free + 1);
  for (int i = 0; i < 1 << 16; ++i) r.Add(1);
  r.refused.RoomMayHaveCome();
  CHECK(r.Take() == 1 << 16);
}

TEST_CASE("RefusedReservations keeps no memory for the keys of a request") {
  RefusedReservations refused;
  refused.Add({.request_id = "r", .keys = std::vector<BlockKey>(1000), .kv_tokens = 16000}, 1000);
  refused.RoomMayHaveCome();
  size_t keys = 1;
  refused.TakeFitting([&keys](const ReserveRequest& request, int64_t) {
    keys = request.keys.capacity();
    return true;
  });
  CHECK(keys == 0);
}

TEST_CASE("RefusedReservations reports room for each refusal") {
  ForEachSeed(20, [](uint64_t seed) {
    std::mt19937 random(seed);
    Refused r;
    int64_t refusals = 0, reported = 0;
    for (int i = 0; i < 500; ++i) {
      r.free = static_cast<int64_t>(random() % 20);
      if (random() % 2 == 0) {
        r.Add(r.free + 1 + static_cast<int64_t>(random() % 10));
        ++refusals;
      }
      if (random() % 3 == 0) r.refused.RoomMayHaveCome();
      reported += r.Take();
      REQUIRE(reported <= refusals);
    }
    r.free = 1'000'000;
    r.refused.RoomMayHaveCome();
    reported += r.Take();
    CHECK(reported == refusals);
  });
}

}  // namespace baton
